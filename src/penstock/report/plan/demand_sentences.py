"""Describes the demand of a plan: rates, users, growth and SLOs."""

from collections.abc import Iterator

from penstock.planning.plan_result import PlanResult
from penstock.planning.spec.plan_types import WorkloadPlan
from penstock.report.plan.plan_amounts import rate
from penstock.units import count_text, format_digits


def question(result: PlanResult) -> str:
    """Describe the demand of the plan."""
    plan = result.plan
    workloads = "; ".join(
        f"{workload.model} {_load(workload, 'requests/s')}, {workload.slo}"
        + (f", {' or '.join(workload.engines)} only" if workload.engines else "")
        for workload in plan.workloads
    )
    return f"{count_text(plan.horizon_years, 'year')} from {plan.start}: {workloads}"


def plain_demand(result: PlanResult) -> str:
    """Describe the demand in plain words, for readers who do not operate the fleet."""
    plan = result.plan
    jobs = "; ".join(_job(workload) for workload in plan.workloads)
    return f"For {count_text(plan.horizon_years, 'year')} from {plan.start}: {jobs}."


def user_sentences(result: PlanResult) -> Iterator[str]:
    """Explain the request rate of each workload whose demand is stated as users."""
    for workload in result.plan.workloads:
        if workload.requests_per_s is None and workload.users:
            pause = f" and a pause takes {workload.think_s:g} s" if workload.think_s else ""
            yield (
                f"{workload.users:,.0f} users of {workload.name} make {rate(workload.peak_requests_per_s)} requests/s "
                f"at peak, because within the SLO a request takes up to {format_digits(workload.longest_request_s)} s"
                f"{pause}. If answers come faster, users make more requests, and a token costs less than stated here."
            )


def _job(workload: WorkloadPlan) -> str:
    slo = workload.slo
    limits = []
    if slo.ttft_s is not None:
        limits.append(f"get their first token within {slo.ttft_s:g} s")
    if slo.tpot_s is not None:
        limits.append(f"then get at least {1 / slo.tpot_s:.0f} tokens per second")
    if slo.e2e_s is not None:
        limits.append(f"are complete within {slo.e2e_s:g} s")
    in_time = f"{slo.attainment_fraction:.0%} of requests {' and '.join(limits)}"
    return f"{workload.model} {_load(workload, 'requests per second')}; {in_time}"


def _load(workload: WorkloadPlan, unit: str) -> str:
    """State the load of a workload at the peak of the first year, and its growth."""
    load = f"{rate(workload.peak_requests_per_s)} {unit} at peak"
    by_users = workload.requests_per_s is None and workload.users
    load = f"for {workload.users:,.0f} users = {load}" if by_users else f"at {load}"
    growth = workload.growth_per_year.value
    if not growth:
        return load
    return f"{load}, {'growing' if growth > 0 else 'falling'} {abs(growth):.0%} per year"
