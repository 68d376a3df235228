"""A picker without an Envoy of ours answers a gateway that others run, as the endpoint-picker protocol says."""

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from ports import free_ports

pytest.importorskip("httptools", reason='the gateway is an extra: pip install "penstock[gateway]"')

import grpc
from envoy.config.core.v3.base_pb2 import HeaderMap, HeaderValue, Metadata
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from envoy.service.ext_proc.v3.external_processor_pb2_grpc import ExternalProcessorStub
from google.protobuf.struct_pb2 import Struct

from gateway_stack import Running, chat, running

pytestmark = pytest.mark.xdist_group("gateway")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    pick, metrics = free_ports(2)
    more: dict[str, Any] = {"only_pick": f"127.0.0.1:{pick}", "metrics": f"127.0.0.1:{metrics}", "pickers": 2}
    with running(tmp_path_factory.mktemp("picker"), door="ext_proc", step_s=0.001, **more) as started:
        yield started


def headers(**values: str) -> HeaderMap:
    return HeaderMap(headers=[HeaderValue(key=key, raw_value=value.encode()) for key, value in values.items()])


def asked(body: bytes, subset: list[str] | None = None) -> list[Any]:
    """What a gateway sends until the body is whole."""
    head = pb.HttpHeaders(headers=headers(**{":method": "POST", ":path": "/v1/chat/completions"}))
    first = pb.ProcessingRequest(request_headers=head)
    first.protocol_config.request_body_mode = 4  # FULL_DUPLEX_STREAMED
    if subset is not None:
        hint = Struct()
        hint.update({"x-gateway-destination-endpoint-subset": subset})
        first.metadata_context.CopyFrom(Metadata(filter_metadata={"envoy.lb.subset_hint": hint}))
    return [first, pb.ProcessingRequest(request_body=pb.HttpBody(body=body, end_of_stream=True))]


def answers(stack: Running, messages: list[Any]) -> list[Any]:
    assert stack.stack.only_pick is not None
    with grpc.insecure_channel(stack.stack.only_pick) as channel:
        return list(ExternalProcessorStub(channel).Process(iter(messages), timeout=10))


def destinations(answer: Any) -> list[str]:  # noqa: ANN401 - generated
    said = {
        option.header.key: option.header.raw_value.decode()
        for option in answer.request_headers.response.header_mutation.set_headers
    }
    return str(said["x-gateway-destination-endpoint"]).split(",")


def in_flight(stack: Running) -> float:
    page = urllib.request.urlopen(f"http://{stack.stack.metrics}/metrics", timeout=5).read().decode()
    return sum(float(line.split()[-1]) for line in page.splitlines() if line.startswith("penstock_in_flight_requests{"))


def test_it_names_endpoints_and_gives_the_body_back(stack: Running) -> None:
    body = chat(4)
    first, *rest = answers(stack, asked(body))
    named = destinations(first)
    assert set(named) <= set(stack.stack.addresses)
    assert len(set(named)) == len(named) >= 2
    assert b"".join(one.request_body.response.body_mutation.streamed_response.body for one in rest) == body
    metadata = first.dynamic_metadata.fields["envoy.lb"].struct_value.fields
    assert metadata["x-gateway-destination-endpoint"].string_value == ",".join(named)


def test_it_keeps_to_what_the_gateway_allows_and_refuses_what_nobody_serves(stack: Running) -> None:
    only = stack.stack.addresses[2]
    assert destinations(answers(stack, asked(chat(), subset=[only]))[0]) == [only]
    assert answers(stack, asked(chat(), subset=["10.9.9.9:1"]))[0].immediate_response.status.code == 503
    refused = answers(stack, asked(chat(model="another")))[0].immediate_response
    assert (refused.status.code, json.loads(refused.body)["error"]["type"]) == (404, "no-such-model")


def test_requests_whose_end_nobody_tells_do_not_stay_in_flight(stack: Running) -> None:
    """Some gateways do not show answers to a picker: an answer is then taken to end when that is predicted."""
    import time  # noqa: PLC0415

    for _ in range(20):
        answers(stack, asked(chat(5)))
    for _ in range(100):
        if in_flight(stack) == 0:
            break
        time.sleep(0.1)
    assert in_flight(stack) == 0


def test_it_says_that_it_serves(stack: Running) -> None:
    assert stack.stack.only_pick is not None
    with grpc.insecure_channel(stack.stack.only_pick) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert check(b"", timeout=5) == b"\x08\x01"
