"""Every MUST of the endpoint-picker protocol (Gateway API Inference Extension, proposal 004), asked over gRPC.

Each test cites the section it checks and runs for both ways a gateway sends bodies: buffered, and streamed in full
duplex. `penstock route --protocol ext_proc --only-pick` answers; no gateway stands between.
"""

import json
import re
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

pytest.importorskip("httptools", reason='the gateway is an extra: pip install "penstock[gateway]"')

import grpc

from gateway_stack import Running, chat, running
from picker_protocol import BUFFERED, DUPLEX, Answer, asked, exchange, health, watched
from ports import free_ports

SERVING, NOT_SERVING, SERVICE_UNKNOWN = 1, 2, 3
READINESS = ("", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor")
_ADDRESSES = re.compile(r"\d+\.\d+\.\d+\.\d+:\d+(,\d+\.\d+\.\d+\.\d+:\d+)*")

both_modes = pytest.mark.parametrize("mode", [BUFFERED, DUPLEX], ids=["buffered", "duplex"])
any_request = pytest.mark.parametrize("body", [chat(), None], ids=["with body", "without body"])


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    pick, metrics = (f"127.0.0.1:{port}" for port in free_ports(2))
    folder = tmp_path_factory.mktemp("protocol")
    with running(folder, protocol="ext_proc", step_s=0.001, only_pick=pick, metrics=metrics) as started:
        with watched(pick, "readiness") as statuses:
            assert SERVING in statuses
        yield started


@pytest.fixture
def picker(stack: Running) -> str:
    assert stack.stack.only_pick is not None
    return stack.stack.only_pick


@contextmanager
def dead(stack: Running, picker: str) -> Iterator[None]:
    """All endpoints are down, and the picker knows."""
    with watched(picker, "readiness") as statuses:
        assert next(statuses) == SERVING
        stack.fault("die")
        try:
            assert next(statuses) == NOT_SERVING
            yield
        finally:
            stack.fault("none")
            assert next(statuses) == SERVING


def counted(stack: Running, name: str) -> float:
    page = urllib.request.urlopen(f"http://{stack.stack.metrics}/metrics", timeout=5).read().decode()
    return sum(float(line.split()[-1]) for line in page.splitlines() if line.startswith(f"{name}{{"))


def awaited(stack: Running, name: str, value: float) -> None:
    begun = time.monotonic()
    while counted(stack, name) != value:
        assert time.monotonic() - begun < 15
        time.sleep(0.05)


def assert_destination(answer: Answer, among: tuple[str, ...]) -> None:
    assert answer.status is None
    assert answer.header == answer.metadata
    assert set(answer.named) <= set(among)


@both_modes
@pytest.mark.parametrize("trailers", [False, True])
def test_proposal_it_implements_the_ext_proc_service(picker: str, mode: int, *, trailers: bool) -> None:
    """Proposal: "The EPP MUST implement the Envoy external processing service protocol"."""
    body = chat()
    with exchange(picker, mode) as one:
        kinds = one.request(body, trailers=trailers).kinds
        answers = one.response(one.answer.named[0], [b"{}"])
    assert kinds == [
        "request_headers",
        "request_body",
        *(["request_trailers"] if trailers else []),
        "response_headers",
        "response_body",
    ]
    # Only a gateway that streams bodies in full duplex takes them back.
    assert answers[0].response_body.response.HasField("body_mutation") == (mode == DUPLEX)


@both_modes
def test_proposal_it_streams_requests_and_responses(picker: str, mode: int) -> None:
    """Proposal: "The EPP MUST support streaming mode for inference requests and responses"."""
    body = chat(prompt="x" * 300_000)
    tokens = [b"data: %d\n\n" % number for number in range(20)]
    with exchange(picker, mode) as one:
        answer = one.request(body)
        said = one.response(answer.named[0], tokens)
    assert answer.body == (body if mode == DUPLEX else b"")
    back = [one.response_body.response.body_mutation.streamed_response for one in said]
    if mode == DUPLEX:
        # A token is sent on when it comes, not when the answer is whole.
        assert [part.body for part in back] == tokens
        assert [part.end_of_stream for part in back] == [False] * 19 + [True]


@both_modes
@any_request
@pytest.mark.parametrize("joined", [False, True], ids=["list", "string"])
def test_endpoint_subset_limits_the_choice(
    stack: Running, picker: str, mode: int, body: bytes | None, *, joined: bool
) -> None:
    """Endpoint Subset: "the EPP MUST only select endpoints from the specified list", under `envoy.lb.subset_hint`."""
    for only in (stack.stack.addresses[2:], stack.stack.addresses[:2]):
        hint = ",".join(only) if joined else [*only, "10.9.9.9:1"]
        for _ in range(5):
            assert_destination(asked(picker, mode, body, subset=hint), only)


@both_modes
@any_request
@pytest.mark.parametrize("subset", [["10.9.9.9:1"], [], ""], ids=["foreign", "empty list", "empty string"])
def test_endpoint_subset_without_an_eligible_endpoint_is_503(
    picker: str, mode: int, body: bytes | None, subset: object
) -> None:
    """Endpoint Subset: "none of the endpoints in the list is eligible or the list is empty": MUST be 503."""
    assert asked(picker, mode, body, subset=subset).status == 503


@both_modes
@any_request
def test_endpoint_subset_not_set_selects_from_the_pool(
    stack: Running, picker: str, mode: int, body: bytes | None
) -> None:
    """Endpoint Subset: where the key is not set, "the EPP MUST select from the set defined by the InferencePool"."""
    answer = asked(picker, mode, body)
    assert_destination(answer, stack.stack.addresses)
    assert set(answer.named) == set(stack.stack.addresses)


@both_modes
@any_request
def test_destination_endpoint_is_in_header_and_metadata(picker: str, mode: int, body: bytes | None) -> None:
    """Destination Endpoint: header and `envoy.lb` metadata, MUST be `<ip:port>,...`, MUST not differ."""
    answer = asked(picker, mode, body)
    assert answer.header is not None
    assert answer.metadata == answer.header
    assert _ADDRESSES.fullmatch(answer.header)
    assert len(set(answer.named)) == len(answer.named) == 3


@both_modes
def test_destination_endpoint_without_a_ready_one_is_503(stack: Running, picker: str, mode: int) -> None:
    """Destination Endpoint: "it MUST return ... 503 (Service Unavailable) if there are no ready endpoints"."""
    with dead(stack, picker):
        for body in (chat(), None):
            for subset in (None, list(stack.stack.addresses)):
                answer = asked(picker, mode, body, subset=subset)
                assert (answer.status, answer.retry_after, answer.header) == (503, "1", None)


@both_modes
def test_destination_endpoint_of_a_request_that_is_dropped_is_429(stack: Running, picker: str, mode: int) -> None:
    """Destination Endpoint: "it MUST return ... 429 (Too Many Requests) if the request should be dropped"."""
    late = {"x-penstock-objective": "batch", "x-llm-d-slo-tpot-ms": "0.001"}
    with ExitStack() as under_way:
        for address in stack.stack.addresses:
            busy = under_way.enter_context(exchange(picker, mode)).request(chat(), subset=[address])
            assert busy.named == [address]
        answer = asked(picker, mode, chat(), said=late)
    assert answer.status == 429
    assert answer.retry_after is not None
    assert int(answer.retry_after) >= 1


@both_modes
def test_destination_endpoint_served_is_heard(stack: Running, picker: str, mode: int) -> None:
    """Destination Endpoint Served: the gateway MUST say who served; the request has ended, at another than picked."""
    awaited(stack, "penstock_in_flight_requests", 0)
    before = counted(stack, "penstock_moved_answers_total")
    with exchange(picker, mode) as one:
        named = one.request(chat(400)).named
        awaited(stack, "penstock_in_flight_requests", 1)
        one.response(named[1], [json.dumps({}).encode()])
    awaited(stack, "penstock_in_flight_requests", 0)
    assert counted(stack, "penstock_moved_answers_total") == before + 1


def test_health_checking_of_each_service(stack: Running, picker: str) -> None:
    """Health Checking: "The EPP MUST implement health checking", of the services it lists."""
    assert [health(picker, name) for name in ("liveness", *READINESS)] == [SERVING] * 4
    with dead(stack, picker):
        assert health(picker, "liveness") == SERVING
        assert [health(picker, name) for name in READINESS] == [NOT_SERVING] * 3


def test_health_check_protocol_of_a_service_that_is_not_there(picker: str) -> None:
    """Health Check Protocol, by gRPC's: Check is NOT_FOUND, Watch sends SERVICE_UNKNOWN and goes on."""
    with pytest.raises(grpc.RpcError) as refused:
        health(picker, "nonsense")
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    with watched(picker, "nonsense") as statuses:
        assert next(statuses) == SERVICE_UNKNOWN


@pytest.mark.parametrize("service", READINESS)
def test_health_check_protocol_watches_changes(stack: Running, picker: str, service: str) -> None:
    """Health Check Protocol, by gRPC's: Watch sends the status at once, and again when it changes."""
    with watched(picker, service) as statuses:
        assert next(statuses) == SERVING
        with dead(stack, picker):
            assert next(statuses) == NOT_SERVING
        assert next(statuses) == SERVING
