"""Doubt grows with the distance from the loads that were measured."""

from functools import cache
from itertools import pairwise

import pytest

from examples import deployment
from penstock.performance.shipped.shipped_runs import shipped_efficiencies
from penstock.planning.candidates.queueless_screen import QueuelessScreen
from penstock.planning.candidates.replica_capacity import Option
from penstock.planning.spec.plan_types import Bucket
from penstock.workload import parse_slo

SHORT = Bucket(input_tokens=1024, output_tokens=1024)
PUBLISHED_MAXIMUM = {"h200": 6868, "b200": 25_943}
"""Output tokens per second and device of gpt-oss-120b, 1,000 in and out, in NVIDIA's performance overview, offline."""


@cache
def screen() -> QueuelessScreen:
    return QueuelessScreen(shipped_efficiencies())


@pytest.mark.parametrize("on", PUBLISHED_MAXIMUM)
def test_the_interval_includes_what_was_reached(on: str) -> None:
    """Rates within an SLO were 1.5 times the vendor's offline maximum, at +-15%, far beyond any measured load."""
    placed = deployment("gpt-oss-120b", on, tp=1, engine="trtllm")
    option = Option(id=on, weights="mxfp4", deployment=placed, measured_engine="trtllm")
    seen = screen().alone(option, SHORT, parse_slo("ttft=4s,tpot=60ms"))
    rate = seen.requests_per_s
    assert rate.low * SHORT.output_tokens <= PUBLISHED_MAXIMUM[on] <= rate.high * SHORT.output_tokens


def test_each_doubling_beyond_the_measured_load_widens() -> None:
    placed = deployment("gpt-oss-120b", "h200", tp=1, engine="trtllm")
    option = Option(id="h200", weights="mxfp4", deployment=placed, measured_engine="trtllm")
    steps = screen().compiled(option)
    assert steps.measured_users is not None
    spread = (-0.1, 0.12)
    widths = [steps.beyond(spread, steps.measured_users * times) for times in (0.5, 1, 2, 4, 8)]
    assert widths[0] == widths[1] == spread
    assert all(near[0] > far[0] and near[1] < far[1] for near, far in pairwise(widths[1:]))
