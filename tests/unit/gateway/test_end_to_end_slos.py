"""The `e2e_s` of a fleet file's route steers a gateway as it steers the simulator."""

from dataclasses import replace
from pathlib import Path

from gateway_fakes import Clock, body_fields, fleet, picker_of
from penstock.api.arguments.fleet_argument import fleet_choice
from penstock.api.route import routed_fleet
from penstock.gateway.picker.picker import EndpointChoice
from penstock.gateway.picker.request_body import RequestHints

FLEET = Path(__file__).resolve().parents[3] / "examples" / "fleets" / "chat-h100-mi300x.yaml"


def test_a_picker_chooses_the_endpoint_that_finishes_in_time() -> None:
    """50 tokens of 80 ms are 4 s, of 20 ms 1 s: the second keeps 2 s, though its prompts are slower."""
    routed = fleet()
    routed.endpoints["step_s"], routed.endpoints["prompt_token_s"] = [0.08, 1, 0.02, 1], [1e-5, 1, 4e-3, 1]
    promised = tuple(replace(item, ttft_s=None, tpot_s=None) for item in routed.classes)
    begins = tuple(replace(item, ttft_s=0.3) for item in promised)
    ends = tuple(replace(item, e2e_s=2.0) for item in promised)
    for classes, first in ((begins, 0), (ends, 2)):
        picker, _ = picker_of(replace(routed, classes=classes), Clock())
        named = picker.decide(body_fields(), b"{}", RequestHints())
        assert isinstance(named, EndpointChoice)
        assert named.order[0] == first


def test_a_routes_limit_reaches_the_gateway() -> None:
    described = fleet_choice(FLEET)
    route = replace(described.routes[0], slo=replace(described.routes[0].slo, e2e_s=7.5))
    here = tuple(replace(pool, endpoints=(f"127.0.0.1:{8000 + place}",)) for place, pool in enumerate(described.pools))
    routed = routed_fleet(replace(described, pools=here, routes=(route,)))
    assert [item.e2e_s for item in routed.classes] == [7.5]
    assert routed.parameters(1)["class_e2e_s"][0, 0] == 7.5
    assert routed.load_of(routed.models[0])[0].e2e_s == 7.5
