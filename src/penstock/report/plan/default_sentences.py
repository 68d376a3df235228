"""Writes the values at their defaults that decide between fleets."""

from collections.abc import Mapping, Sequence
from typing import Final

from penstock.planning.plan_defaults import Path, PlanDefault, plan_defaults
from penstock.planning.plan_result import Answer
from penstock.planning.spec.resolve_plan import Resolved
from penstock.report.plan.plan_amounts import usd
from penstock.report.plan.sentences import label_name

_PERCENT: Final = frozenset(
    {
        *("growth_per_year", "mean_load", "utilisation", "confidence", "discount_rate", "salvage", "resale"),
        *("price_change_per_year", "idle_power", "annual_failures", "software_gain_per_year"),
    }
)


def default_sentence(resolved: Resolved) -> str:
    """List the values at their defaults in the words of a plan file, each key once."""
    found: dict[str, dict[str, str]] = {}
    for entry in plan_defaults(resolved):
        found.setdefault(entry.path[-1], {})[_owner(entry.path)] = default_text(entry)
    return "; ".join(f"{key} {_by_owner(texts)}" for key, texts in found.items())


def size_sentence(answer: Answer) -> str:
    """State the answer with single devices, if the plan states a price of its own but no size; otherwise no text."""
    found = answer.single_devices
    if found is None:
        return ""
    sold = " and ".join(f"{ident} in {_sizes(sizes)}" for ident, sizes in found.sizes.items())
    costs = [f"{label_name(label)} {usd(amount)}" for label, amount in found.usd.items()]
    first = f"Your price states no size of an instance; the catalog knows {sold}"
    same = "wins too" if found.winner == answer.verdict.winner else "wins instead"
    then = f"by the single device {label_name(found.winner)} {same}: {', '.join(costs)}"
    return f"{first}. If it is sold {then}. State `instances:`."


def _sizes(sizes: Sequence[int]) -> str:
    return f"instances of {', '.join(map(str, sizes))}" if sizes else "whole servers"


def _owner(path: Path) -> str:
    """Return the accelerator, workload or vendor that a value belongs to; empty if it belongs to the whole plan."""
    return path[-2] if len(path) > 2 else ""


def _by_owner(texts: Mapping[str, str]) -> str:
    if len(set(texts.values())) == 1:
        return next(iter(texts.values()))
    return " and ".join(f"{owner} {text}" for owner, text in texts.items())


def default_text(default: PlanDefault) -> str:
    """Format the value of a default."""
    value = default.value
    if isinstance(value, dict):
        value = value["value"]
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(str(one) for one in value) or "whole servers"
    if isinstance(value, (int, float)) and default.path[-1] in _PERCENT:
        return f"{value:.3g}%" if value > 1 else f"{100 * value:.3g}%"
    return f"{value:,g}" if isinstance(value, (int, float)) else str(value)
