"""Lists the defaults of a plan as its file would state them: stating one of them changes no answer."""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Final

from penstock.planning.optimizer.node_costs import step_months, with_steps
from penstock.planning.spec.plan_file import PlanFile, WorkloadEntry, default_stack
from penstock.planning.spec.plan_types import AcceleratorPlan, Constraints, Plan, WorkloadPlan
from penstock.planning.spec.resolve_plan import Resolved
from penstock.planning.spec.sourced_inputs import Input

Path = tuple[str, ...]
"""Keys of a plan file; an entry of a list is named by its `name` or `id`."""
_WORKLOAD_KEYS: Final = ("weights", "kv", "mtp", "disaggregated", "growth_per_year", "mean_load")
_PLAN_KEYS: Final = ("horizon_years", "acquire")
_MONEY_KEYS: Final = ("discount_rate", "depreciation_years", "salvage", "resale", "price_change_per_year")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDefault:
    """A value at its default, which the plan may state too."""

    path: Path
    value: object
    """Value as a plan file states it."""


def plan_defaults(resolved: Resolved) -> tuple[PlanDefault, ...]:
    """Return the values at their defaults, those that decide between fleets most often first."""
    plan = resolved.plan
    found = (
        *(pair for planned in plan.accelerators for pair in _sizes(planned)),
        *_same((), plan, _usual(PlanFile), _PLAN_KEYS),
        *_steps(plan),
        *_same(("constraints",), plan.constraints, _usual(Constraints), tuple(_usual(Constraints))),
        *(pair for workload in plan.workloads for pair in _of_workload(workload)),
        *(pair for vendor in plan.stacks for pair in _stack(plan, vendor)),
        *_same(("finance",), plan.money, _usual(type(plan.money)), _MONEY_KEYS),
        *_same(("node",), plan.node, _usual(type(plan.node)), tuple(_usual(type(plan.node)))),
    )
    return tuple(PlanDefault(path=path, value=_plain_value(value)) for path, value in found)


def _usual(entry: type) -> Mapping[str, object]:
    """Map each optional field of a part of a plan file to its default."""
    return {one.name: one.default for one in fields(entry) if one.default is not MISSING}


def _same(
    at: Path, owner: object, usual: Mapping[str, object], names: tuple[str, ...]
) -> Iterator[tuple[Path, object]]:
    """Yield the fields of a part of the plan that have their default, except for rules that are off."""
    for name in names:
        value = getattr(owner, name)
        if value is not None and _equal(value, usual[name]):
            yield (*at, name), value


def _equal(value: object, usual: object) -> bool:
    if isinstance(value, Input) and isinstance(usual, Input):
        return (value.value, value.low, value.high) == (usual.value, usual.low, usual.high)
    return value == usual


def _sizes(planned: AcceleratorPlan) -> Iterator[tuple[Path, object]]:
    if not planned.instances_stated and planned.instances is not None and (planned.rent or planned.contracts):
        yield ("accelerators", planned.id, "instances"), planned.instances


def _steps(plan: Plan) -> Iterator[tuple[Path, object]]:
    """Yield the months between changes of the fleet, if they are the default and whole."""
    usual = with_steps(replace(plan, step_months=None))
    months = usual.step_months or round(step_months(usual), 6)
    if (plan.step_months or round(step_months(plan), 6)) == months and months == int(months):
        yield ("step_months",), int(months)


def _of_workload(workload: WorkloadPlan) -> Iterator[tuple[Path, object]]:
    return _same(("workloads", workload.name), workload, _usual(WorkloadEntry), _WORKLOAD_KEYS)


def _stack(plan: Plan, vendor: str) -> Iterator[tuple[Path, object]]:
    usual = default_stack(vendor)
    return _same(
        ("stacks", vendor),
        plan.stacks[vendor],
        {one: getattr(usual, one) for one in _usual(type(usual))},
        tuple(_usual(type(usual))),
    )


def _plain_value(value: object) -> object:
    """Return a value as a plan file states it."""
    if isinstance(value, Input):
        return {"value": value.value, "low": value.low, "high": value.high} if value.uncertain else value.value
    return list(value) if isinstance(value, tuple) else value
