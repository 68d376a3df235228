"""What would settle a close call follows from what is blamed, not from how it is called."""

from dataclasses import replace

import pytest

from penstock.planning.doubt.knobs import KnobKind
from penstock.planning.doubt.monte_carlo import Blame
from penstock.planning.doubt.verdict import judge
from penstock.planning.make import Answer, PlanResult
from small_plans import TWO_PARTS, solved


@pytest.fixture(scope="module")
def result() -> PlanResult:
    return solved(TWO_PARTS)


@pytest.mark.parametrize(
    ("kind", "subject", "expected"),
    [
        ("price", "mi300x", "get a written quote for mi300x, a device"),
        ("rent", "mi300x", "get a written quote for mi300x, a device-hour"),
        ("throughput", "mi300x", "benchmark llama-3.1-8b on mi300x, tp1, bf16 weights, at your lengths and SLO"),
        ("throughput", "b200_sxm", "benchmark b200_sxm on your own workload"),
    ],
)
def test_a_price_asks_for_a_quote_and_a_throughput_for_a_benchmark(
    result: PlanResult, kind: KnobKind, subject: str, expected: str
) -> None:
    answer = result.answer
    assert isinstance(answer, Answer)
    blamed = Blame(kind=kind, subject=subject, name="called anything", variance_fraction=1.0)
    verdict = judge(answer.family, replace(answer.confidence, blame=(blamed,)), result.candidates)
    assert verdict.measure == (expected,)
