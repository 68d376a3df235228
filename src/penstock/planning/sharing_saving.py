"""Says what several models that leave their devices idle would cost on shared devices."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from penstock.errors import UsageError
from penstock.planning.plan_result import NoFleet, PlanResult, SharingSaving
from penstock.planning.shared_placement.shared_plan import SharedPlan
from penstock.planning.spec.plan_types import Plan

_IDLE: Final = 0.9
"""Share of time that the devices of several models are idle, from which on sharing is considered."""


def sharing_saving(result: PlanResult, share: Callable[[Plan], SharedPlan]) -> SharingSaving | None:
    """Return what the models would cost on shared devices; None unless several models leave their devices idle.

    Only accelerators of the plan's fleet are asked. A shared plan has no growth, so plans that grow get no amount.
    """
    answer, plan = result.answer, result.plan
    if isinstance(answer, NoFleet) or len(plan.workloads) < 2:
        return None
    idle = 1 - answer.winner.cost.busy_fraction
    if idle < _IDLE:
        return None
    found = SharingSaving(idle_fraction=idle, accelerator=None, rented_devices=None, rent_usd=None)
    if any(workload.growth_per_year.value for workload in plan.workloads):
        return found
    used = answer.winner.mix.support
    kept = tuple(entry for entry in plan.accelerators if entry.id in used)
    try:
        choices = share(replace(plan, accelerators=kept)).choices
    except UsageError:
        return found
    best = next((choice for choice in choices if not choice.too_large), None)
    if best is None:
        return found
    return replace(found, accelerator=best.accelerator, rented_devices=best.rented_devices, rent_usd=best.usd)
