"""The demand line names what the plan serves: users and their rate, and growth."""

from dataclasses import replace

from penstock.planning.plan_result import PlanResult
from penstock.planning.spec.sourced_inputs import Input
from penstock.report.plan.demand_sentences import plain_demand, question, user_sentences
from small_plans import TWO_PARTS, solved


def with_workload(result: PlanResult, **changes: object) -> PlanResult:
    (workload,) = result.plan.workloads
    plan = replace(result.plan, workloads=(replace(workload, **changes),))  # type: ignore[arg-type]
    return replace(result, resolved=replace(result.resolved, plan=plan))


def test_users_are_named_with_the_rate_they_make_and_why() -> None:
    """Attack: `users: 50` was not named, and the price of a token was 2.1 times what these users would pay."""
    result = solved(TWO_PARTS.replace("requests_per_s: 40", "users: 50"))
    (workload,) = result.plan.workloads
    mean_output = 0.6 * 256 + 0.4 * 512
    longest_s = 1 + 0.05 * (mean_output - 1)
    assert workload.peak_requests_per_s == 50 / longest_s
    assert f"llama-3.1-8b for 50 users = {50 / longest_s:.3g} requests/s at peak" in question(result)
    (said,) = user_sentences(result)
    assert said.startswith(f"50 users of chat make {50 / longest_s:.3g} requests/s at peak, because within the SLO a ")
    assert "a token costs less" in said
    (paused,) = user_sentences(with_workload(result, think_s=10.0))
    assert "and a pause takes 10 s" in paused


def test_a_rate_has_no_users_and_growth_is_in_the_demand_line() -> None:
    result = solved(TWO_PARTS)
    assert list(user_sentences(result)) == []
    assert "per year" not in question(result)
    growing = with_workload(
        result, growth_per_year=Input(value=0.6, low=0.6, high=0.6, unit="per year", source="a test")
    )
    assert "at 40 requests/s at peak, growing 60% per year" in question(growing)
    assert "at 40 requests per second at peak, growing 60% per year" in plain_demand(growing)
    falling = with_workload(
        result, growth_per_year=Input(value=-0.1, low=-0.1, high=-0.1, unit="per year", source="a test")
    )
    assert "falling 10% per year" in question(falling)
