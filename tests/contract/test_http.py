"""What passes a gateway with keys and two models, by literal names: requests, answers, errors and metrics."""

import json
import re
import socket
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from contract.gateway_door import (
    LARGE,
    PROTOCOLS,
    SMALL,
    Answer,
    Gateway,
    arrived,
    chat,
    held,
    running,
    send,
    send_h2,
    sent,
    start,
    until,
    write_fleet,
)
from fake_engines import fake_engines

KEY, SPOOFED = "sk-contract-0123456789abcdef", "7654321"
KEYED = (("authorization", f"Bearer {KEY}"),)
RESERVED = (
    "x-gateway-destination-endpoint",
    "x-gateway-destination-endpoint-subset",
    "x-gateway-destination-endpoint-served",
    "x-penstock-ticket",
    "x-penstock-picker",
    "x-penstock-model",
    "x-penstock-streamed",
)
TENANTS = ("x-penstock-tenant", "x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id")
OF_ENVOY = (
    "x-envoy-decorator-operation",
    "x-envoy-force-trace",
    "x-envoy-hedge-on-per-try-timeout",
    "x-envoy-max-retries",
    "x-envoy-retriable-header-names",
    "x-envoy-retriable-status-codes",
    "x-envoy-retry-grpc-on",
    "x-envoy-retry-on",
    "x-envoy-upstream-alt-stat-name",
    "x-envoy-upstream-rq-per-try-timeout-ms",
    "x-envoy-upstream-rq-timeout-alt-response",
    "x-envoy-upstream-rq-timeout-ms",
)
TO_ENGINES = {
    "module": {"content-length"},
    # Bodies are streamed through the picker.
    "ext_proc": {"transfer-encoding", "x-penstock-ticket", "x-penstock-picker"},
}
ALWAYS_TO_ENGINES = {
    *("host", "content-type", "x-request-id", "x-forwarded-for", "x-forwarded-proto"),
    *("x-envoy-external-address", "x-envoy-attempt-count"),
    *("x-penstock-tenant", "x-penstock-model", "x-gateway-destination-endpoint"),
}


@pytest.fixture(scope="module")
def gateways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Gateway]]:
    """One of each protocol, with engines of its own: two of the first model, one of the second."""
    with ExitStack() as stack:
        made = {}
        for protocol in PROTOCOLS:
            engines = stack.enter_context(fake_engines(3, (SMALL, SMALL, LARGE)))
            folder = tmp_path_factory.mktemp(protocol)
            access = folder / "access.yaml"
            access.write_text(f"version: 1\nkeys:\n  - {{tenant: search, key: {KEY}}}\n")
            access.chmod(0o600)
            write_fleet(folder / "fleet.yaml", [engine.address for engine in engines[:2]], [engines[2].address])
            files = ("--access-log", str(folder / "access.jsonl"), "--receipts", str(folder / "receipts.jsonl"))
            made[protocol] = start(folder, engines, "--access", str(access), *files, protocol=protocol)
        stack.enter_context(running(*made.values()))
        yield made


@pytest.fixture(params=PROTOCOLS)
def gateway(request: pytest.FixtureRequest, gateways: dict[str, Gateway]) -> Gateway:
    found: Gateway = gateways[request.param]
    for engine in found.engines:
        engine.heads.clear()
        engine.more_headers = ""
    return found


# --- What reaches an engine ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "credential", [f"authorization: Bearer {KEY}", f"authorization: bearer {KEY}", f"x-api-key: {KEY}"]
)
def test_engines_never_see_client_keys(gateway: Gateway, credential: str) -> None:
    name, _, value = credential.partition(": ")
    assert send(gateway.address, chat(), [(name, value)]).status == 200
    head, headers = arrived(gateway.engines)
    assert KEY not in head
    assert not headers.keys() & {"authorization", "x-api-key"}


@pytest.mark.parametrize("name", [*RESERVED, *OF_ENVOY])
def test_engines_see_no_reserved_header_of_clients(gateway: Gateway, name: str) -> None:
    """Nor where the gateway writes no such header itself: a model with one endpoint, and a request without a body."""
    for body in (chat(), chat(LARGE), chat(stream=True), None):
        assert send(gateway.address, body, [*KEYED, (name, SPOOFED), (name, SPOOFED)]).status == 200
        assert SPOOFED not in arrived(gateway.engines)[0]


@pytest.mark.parametrize("name", TENANTS)
def test_tenant_of_engines_comes_from_the_key(gateway: Gateway, name: str) -> None:
    assert send(gateway.address, chat(), [*KEYED, (name, SPOOFED)]).status == 200
    head, headers = arrived(gateway.engines)
    assert SPOOFED not in head
    assert {key: value for key, value in headers.items() if key in TENANTS} == {"x-penstock-tenant": "search"}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_engines_get_these_headers_only(gateway: Gateway, stream: bool) -> None:  # noqa: FBT001 - a parameter
    assert send(gateway.address, chat(stream=stream), KEYED).status == 200
    _, headers = arrived(gateway.engines)
    streamed = {"x-penstock-streamed"} if stream else set[str]()
    assert headers.keys() == ALWAYS_TO_ENGINES | TO_ENGINES[gateway.protocol] | streamed
    assert (headers["x-penstock-model"], headers["x-penstock-tenant"]) == (SMALL, "search")
    assert headers.get("x-penstock-streamed", "1") == "1"


def test_destination_lists_endpoints_of_the_fleet(gateway: Gateway) -> None:
    """The picker names all in order; the module names those for further tries."""
    assert send(gateway.address, chat(), [*KEYED, ("x-gateway-destination-endpoint", "127.0.0.1:9")]).status == 200
    served = next(engine.address for engine in gateway.engines if engine.heads)
    others = [engine.address for engine in gateway.engines[:2] if engine.address != served]
    _, headers = arrived(gateway.engines)
    expected = others if gateway.protocol == "module" else [served, *others]
    assert headers["x-gateway-destination-endpoint"].split(",") == expected


def test_hints_and_traces_of_clients_reach_engines(gateway: Gateway) -> None:
    trace = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
    hints = {"traceparent": trace, "x-penstock-objective": "critical", "x-llm-d-slo-ttft-ms": "900"}
    assert send(gateway.address, chat(), [*KEYED, *hints.items()]).status == 200
    assert hints.items() <= arrived(gateway.engines)[1].items()


def test_bodies_reach_engines_unchanged(gateway: Gateway) -> None:
    """The engine answers with the length that it received; the content type is its own matter."""
    body = chat(prompt='größe "quoted" \\ ' * 4000)
    for kind in ("application/json", "text/plain"):
        answer = send(gateway.address, body, [*KEYED, ("content-type", kind)])
        assert json.loads(answer.body)["choices"][0]["message"]["content"] == str(len(body))


def test_models_reach_their_own_engines(gateway: Gateway) -> None:
    for model, engines in ((SMALL, gateway.engines[:2]), (LARGE, gateway.engines[2:])):
        for _ in range(4):
            assert send(gateway.address, chat(model), KEYED).status == 200
            assert arrived(engines)[1]["x-penstock-model"] == model


# --- What reaches a client -------------------------------------------------------------------------------------------


def test_clients_get_these_headers_only(gateway: Gateway) -> None:
    whole, streamed = (send(gateway.address, chat(stream=stream), KEYED) for stream in (False, True))
    always = {"content-type", "date", "server", "x-envoy-upstream-service-time"}
    assert whole.headers.keys() == always | {"content-length"}
    assert streamed.headers.keys() == always | {"transfer-encoding"}
    assert (whole.headers["server"], whole.headers["content-type"]) == ("penstock", "application/json")
    assert streamed.headers["content-type"] == "text/event-stream"


def test_clients_get_headers_of_engines(gateway: Gateway) -> None:
    """But the name of the server is the gateway's."""
    for engine in gateway.engines:
        engine.more_headers = "x-engine: own\r\nserver: uvicorn\r\n"
    answer = send(gateway.address, chat(), KEYED)
    assert (answer.headers["x-engine"], answer.headers["server"]) == ("own", "penstock")


def test_http2_clients_get_the_same(gateway: Gateway) -> None:
    for body in (chat(), chat(stream=True), chat("nobody")):
        first, second = send(gateway.address, body, KEYED), send_h2(gateway.address, body, KEYED)
        assert (second.status, second.body) == (first.status, first.body)
        assert second.headers.keys() == first.headers.keys() - {"transfer-encoding"}


def test_first_piece_does_not_wait_for_the_last(gateway: Gateway) -> None:
    """The engine sends the rest only when the client has the first event."""
    with held(gateway) as release, sent(gateway.address, chat(stream=True), KEYED) as connection:
        answer = connection.getresponse()
        assert answer.readline().startswith(b"data: {")
        release()
        assert answer.read().endswith(b"data: [DONE]\n\n")


def test_first_piece_does_not_wait_over_http2(gateway: Gateway) -> None:
    with held(gateway) as release:
        answer = send_h2(gateway.address, chat(stream=True), KEYED, lambda _: release())
    assert answer.body.startswith(b"data: {")
    assert answer.body.endswith(b"data: [DONE]\n\n")


def test_gateway_lists_its_models(gateway: Gateway) -> None:
    listed = send(gateway.address, None, KEYED, path="/v1/models")
    cards = [{"id": name, "object": "model", "created": 0, "owned_by": "penstock"} for name in (SMALL, LARGE)]
    assert json.loads(listed.body) == {"object": "list", "data": cards}
    assert json.loads(send(gateway.address, None, KEYED, path=f"/v1/models/{LARGE}").body) == cards[1]
    assert not any(engine.heads for engine in gateway.engines)


# --- Errors ----------------------------------------------------------------------------------------------------------

UPGRADE = (("connection", "upgrade"), ("upgrade", "websocket"))
HUGE = 9 * 2**20
# Body, headers, path; status and type; what pickers, which parse bodies, say instead.
ERRORS: dict[str, tuple[bytes | None, tuple[tuple[str, str], ...], str, int, str, str]] = {
    "no key": (chat(), (), "", 401, "authentication_error", ""),
    "unknown key": (chat(), (("x-api-key", "sk-somebody-else-0123456"),), "", 401, "authentication_error", ""),
    "no key for the models": (None, (), "/v1/models", 401, "authentication_error", ""),
    "no JSON": (b"not json", KEYED, "", 400, "no-model", "bad-body"),
    "no object": (b"[1, 2]", KEYED, "", 400, "no-model", "bad-body"),
    "no model": (chat(None), KEYED, "", 400, "no-model", ""),
    "output beyond every context": (chat(max_tokens=10**7), KEYED, "", 400, "too-long", ""),
    "an upgrade": (None, (*KEYED, *UPGRADE), "", 403, "permission_error", ""),
    "unknown model": (chat("nobody"), KEYED, "", 404, "no-such-model", ""),
    "unknown card": (None, KEYED, "/v1/models/nobody", 404, "NotFoundError", ""),
    "path of operators": (chat(), KEYED, "/v1/load_lora_adapter", 404, "NotFoundError", ""),
    "stored response": (None, KEYED, "/v1/responses/abc", 404, "NotFoundError", ""),
    "body too large": (chat(prompt="x" * HUGE), KEYED, "", 413, "invalid_request_error", ""),
    "headers too large": (chat(), (*KEYED, ("x-big", "y" * 70_000)), "", 431, "invalid_request_error", ""),
}
REASONS = ("no-model", "bad-body", "too-long", "no-such-model")


@pytest.mark.parametrize("case", ERRORS)
def test_errors_are_json(gateway: Gateway, case: str) -> None:
    body, headers, path, status, kind, of_picker = ERRORS[case]
    answer = send(gateway.address, body, headers, **({"path": path} if path else {}))
    expected = of_picker if of_picker and gateway.protocol == "ext_proc" else kind
    assert (answer.status, answer.error["code"], answer.error["type"]) == (status, status, expected)
    assert answer.error["param"] is None
    assert answer.error["message"]
    too_large = {"x-penstock-reason": "too-large"} if status == 413 and gateway.protocol == "ext_proc" else {}
    said = {"x-penstock-reason": expected} if expected in REASONS else too_large
    more = {
        name: value for name, value in answer.headers.items() if name not in {"date", "connection", "content-length"}
    }
    assert more == {"content-type": "application/json", "server": "penstock", **said}
    assert KEY.encode() not in answer.body
    assert not any(engine.heads for engine in gateway.engines)


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("POST /v1/chat%2Fcompletions HTTP/1.1\r\nhost: x", 400),
        ("POST /v1/chat/completions HTTP/1.1", 400),
        ("CONNECT 127.0.0.1:9 HTTP/1.1\r\nhost: x", 401),
        ("POST /v1/chat/completions HTTP/1.0\r\nhost: x", 426),
    ],
    ids=["escaped slash", "no host", "connect", "HTTP/1.0"],
)
def test_other_protocols_are_refused(gateway: Gateway, request_line: str, status: int) -> None:
    host, port = gateway.address.split(":")
    with socket.create_connection((host, int(port)), timeout=10) as wire:
        wire.sendall(f"{request_line}\r\nauthorization: Bearer {KEY}\r\nconnection: close\r\n\r\n".encode())
        assert wire.recv(4096).startswith(b"HTTP/1.1 %d " % status)
    assert not any(engine.heads for engine in gateway.engines)


@pytest.mark.parametrize("path", ["/health", "/ready"])
def test_health_needs_no_key(gateway: Gateway, path: str) -> None:
    assert gateway.status_of(path) == 200


# --- Logs and metrics ------------------------------------------------------------------------------------------------


def test_access_log_has_these_fields_only(gateway: Gateway) -> None:
    path = "/v1/completions"

    def mine() -> list[dict[str, Any]]:
        return [line for line in gateway.access_log if line["path"] == path]

    assert send(gateway.address, chat(prompt="a secret"), KEYED, path=f"{path}?k=hidden").status == 200
    until(mine)
    (line,) = mine()
    assert line.keys() == {
        *("at", "method", "path", "status", "flags", "served", "tries", "ms", "bytes_in", "bytes_out"),
        *("request", "tenant", "trace"),
    }
    assert (line["status"], line["tenant"], line["tries"]) == (200, "search", 1)
    log = (gateway.folder / "access.jsonl").read_text()
    assert not any(word in log for word in ("a secret", "hidden", KEY))


ENDPOINT, REQUEST = "endpoint model pool", "class model pool tenant"
METRICS = {
    "penstock_picks_total": ("counter", ENDPOINT),
    "penstock_answers_total": ("counter", ENDPOINT),
    "penstock_failed_answers_total": ("counter", ENDPOINT),
    "penstock_moved_answers_total": ("counter", ENDPOINT),
    "penstock_struck_tries_total": ("counter", ENDPOINT),
    "penstock_in_flight_requests": ("gauge", ENDPOINT),
    "penstock_prompt_bytes_total": ("counter", ENDPOINT),
    "penstock_predicted_ttft_seconds_total": ("counter", ENDPOINT),
    "penstock_first_tokens_total": ("counter", ENDPOINT),
    "penstock_ttft_seconds_total": ("counter", ENDPOINT),
    "penstock_decoded_tokens_total": ("counter", ENDPOINT),
    "penstock_decode_seconds_total": ("counter", ENDPOINT),
    "penstock_endpoint_up": ("gauge", ENDPOINT),
    "penstock_endpoint_other_model": ("gauge", ENDPOINT),
    "penstock_endpoint_running_requests": ("gauge", ENDPOINT),
    "penstock_endpoint_waiting_requests": ("gauge", ENDPOINT),
    "penstock_endpoint_kv_used_tokens": ("gauge", ENDPOINT),
    "penstock_endpoint_kv_tokens": ("gauge", ENDPOINT),
    "penstock_endpoint_asleep": ("gauge", ENDPOINT),
    "penstock_wakes_total": ("counter", ENDPOINT),
    "penstock_wake_seconds_total": ("counter", ENDPOINT),
    "penstock_scrapes_total": ("counter", ENDPOINT),
    "penstock_failed_scrapes_total": ("counter", ENDPOINT),
    "penstock_endpoint_report_age_seconds": ("gauge", ENDPOINT),
    "penstock_endpoint_usd_per_hour": ("gauge", ENDPOINT),
    "penstock_decisions_total": ("counter", "picker"),
    "penstock_decision_seconds_total": ("counter", "picker"),
    "penstock_refused_requests_total": ("counter", "picker"),
    "penstock_held_requests_total": ("counter", "picker"),
    "penstock_invalid_requests_total": ("counter", "picker"),
    "penstock_lost_decisions_total": ("counter", "picker"),
    "penstock_picker_up": ("gauge", "picker"),
    "penstock_class_price": ("gauge", "class model picker"),
    "penstock_class_kept_fraction": ("gauge", "class model picker"),
    "penstock_desired_replicas": ("gauge", "model pool"),
    "penstock_up_replicas": ("gauge", "model pool"),
    "penstock_replica_sustained_requests_per_second": ("gauge", "model pool"),
    "penstock_requests_total": ("counter", ""),
    "penstock_active_requests": ("gauge", ""),
    "penstock_requests_2xx_total": ("counter", ""),
    "penstock_requests_4xx_total": ("counter", ""),
    "penstock_requests_5xx_total": ("counter", ""),
    "penstock_request_ttft_seconds": ("histogram", REQUEST),
    "penstock_request_tpot_seconds": ("histogram", REQUEST),
    "penstock_request_seconds": ("histogram", REQUEST),
    "penstock_slo_requests_total": ("counter", f"{REQUEST} slo"),
    "penstock_tokens_total": ("counter", f"{REQUEST} kind"),
    "penstock_tenant_usd_total": ("counter", "model pool tenant"),
    "penstock_idle_usd_total": ("counter", "model pool"),
    "penstock_rent_usd_total": ("counter", "model pool"),
    "penstock_uncharged_usd": ("gauge", "model pool"),
    "penstock_lost_outcomes_total": ("counter", ""),
    "llm_total_hourly_cost": ("gauge", "cost_basis model_name"),
    "llm_cost_per_million_tokens": ("gauge", "cost_basis model_name"),
    "llm_cache_savings_fraction": ("gauge", "model_name"),
}
OF_PROTOCOL: dict[str, dict[str, tuple[str, str]]] = {
    "module": {},
    "ext_proc": {"penstock_fallback_requests_total": ("counter", "")},
}
BY_PHASE = "allocation_method cost_basis model_name phase"
VALUES = {
    "kind": {"input", "cached", "output"},
    "tenant": {"search"},
    "class": {"small-chat", "large-chat"},
    "model": {SMALL, LARGE},
    "pool": {"small", "large"},
    "cost_basis": {"allocation", "usage"},
    "phase": {"prompt", "generation"},
    "allocation_method": {"compute_time"},
    "model_name": {SMALL, LARGE},
}


def test_metrics_have_these_names_labels_and_types(gateway: Gateway) -> None:
    """Dollars are settled half a minute after the start, which this waits for."""
    for model in (SMALL, LARGE):
        for stream in (False, True):
            assert send(gateway.address, chat(model, stream=stream), KEYED).status == 200
    until(lambda: "llm_cache_savings_fraction{" in gateway.page(), 45.0)
    page = gateway.page()
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE))
    labels, values = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    for line in page.splitlines():
        if line.startswith("#"):
            continue
        name, pairs = re.split(r"[ {]", line, maxsplit=1)[0], re.findall(r'(\w+)="([^"]*)"', line)
        base = re.sub(r"_(bucket|count|sum)$", "", name)
        if types.get(base) == "histogram":
            assert ("le" in dict(pairs)) is name.endswith("_bucket")
            name = base
        labels[name].add(" ".join(sorted(label for label, _ in pairs if label != "le")))
        for label, value in pairs:
            values[label].add(value)
    expected = {**METRICS, **OF_PROTOCOL[gateway.protocol]}
    assert types == {name: kind for name, (kind, _) in expected.items()}
    more = {"llm_cost_per_million_tokens": {BY_PHASE}}
    assert labels == {
        name: {" ".join(sorted(said.split()))} | more.get(name, set()) for name, (_, said) in expected.items()
    }
    assert {label: seen for label, seen in values.items() if label in VALUES} == VALUES
    assert set() < values["slo"] <= {"kept", "missed", "unknown"}
    assert values["endpoint"] == {engine.address for engine in gateway.engines}
    assert not [line for line in page.splitlines() if KEY in line]


def test_metrics_count_what_was_answered(gateway: Gateway) -> None:
    def count(name: str) -> float:
        lines = [line for line in gateway.page().splitlines() if re.match(rf"{name}[ {{]", line)]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    def settled() -> bool:
        return count("penstock_picks_total") == count("penstock_answers_total")

    until(settled)
    answered, invalid = count("penstock_answers_total"), count("penstock_invalid_requests_total")
    answers: list[Answer] = [send(gateway.address, body, KEYED) for body in (*[chat()] * 5, chat("nobody"))]
    assert [answer.status for answer in answers] == [200] * 5 + [404]
    until(lambda: count("penstock_invalid_requests_total") == invalid + 1)
    until(lambda: settled() and count("penstock_answers_total") == answered + 5)
    until(lambda: count("penstock_requests_total") > count("penstock_requests_2xx_total") >= answered + 5)
