"""Parses the events that happen during a fleet simulation.

Examples are `death of h100/0 at 60s for 30s`, `slow mi300x/1 x3` and `crowd x3 at 60s`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from penstock.errors import UsageError
from penstock.simulation.compare_policies import LoadSpike
from penstock.simulation.replica import ReplicaPool
from penstock.simulation.run_options import Fault, FaultKind
from penstock.workload import parse_duration

_LINE: Final = re.compile(
    r"(?P<what>death of|slow|silence of|crowd|loss)\s+(?:(?P<pool>\S+)/(?P<number>\d{1,6})\s*)?"
    r"(?:x(?P<factor>\d{1,3}(?:\.\d{1,3})?)\s*)?(?:(?P<percent>\d{1,3}(?:\.\d{1,3})?)%\s*)?"
    r"(?:at\s+(?P<at>\S+)\s*)?(?:for\s+(?P<during>\S+)\s*)?",
    re.IGNORECASE,
)
_FACTOR: Final = re.compile(r"\bx(-?\d\S*)", re.IGNORECASE)
_FACTOR_READ: Final = re.compile(r"\d{1,3}(?:\.\d{1,3})?")
_KINDS: Final[dict[str, FaultKind]] = {"death of": "dies", "slow": "slow", "silence of": "silent"}
_EXAMPLES: Final = (
    "write `death of h100/0 at 60s for 30s`, `slow h100/0 x3 at 60s`, `silence of h100/0 at 60s`, `loss 5%` or "
    "`crowd x3 at 60s for 20s`"
)


@dataclass(frozen=True, slots=True)
class FleetEvents:
    """Events of a simulated run: replica faults, load spikes, and the fraction of endpoint reports that are lost."""

    faults: tuple[Fault, ...] = ()
    load_spikes: tuple[LoadSpike, ...] = ()
    report_loss: float = 0.0
    lines: tuple[str, ...] = ()
    """The events as written by the user."""


def fleet_events_argument(lines: Sequence[str], pools: Sequence[ReplicaPool]) -> FleetEvents:
    """Parse events, one per line. Of several `loss` lines, only the largest loss applies."""
    faults: list[Fault] = []
    load_spikes: list[LoadSpike] = []
    loss = 0.0
    for line in lines:
        match = _LINE.fullmatch(" ".join(line.split()))
        if match is None:
            raise UsageError(f"'{line[:60]}' {_why_not(line)}; {_EXAMPLES}")
        what = match["what"].lower()
        at_s = 0.0 if match["at"] is None else parse_duration(match["at"])
        for_s = inf if match["during"] is None else parse_duration(match["during"])
        if what == "loss":
            if match["at"] is not None or match["during"] is not None:
                raise UsageError(f"'{line[:60]}' applies to the whole run; use `loss 5%` without `at` and `for`")
            loss = max(loss, _percent(line, match["percent"]))
        elif what == "crowd":
            load_spikes.append(
                LoadSpike(factor=float(match["factor"] or 0), at_s=at_s, for_s=0.0 if for_s == inf else for_s)
            )
        else:
            faults.append(
                Fault(
                    kind=_KINDS[what],
                    replica=_replica(line, match["pool"], match["number"], pools),
                    at_s=at_s,
                    for_s=for_s,
                    factor=float(match["factor"] or (3.0 if what == "slow" else 1.0)),
                )
            )
    return FleetEvents(tuple(faults), tuple(load_spikes), loss, tuple(lines))


def _why_not(line: str) -> str:
    """Return the reason why a line cannot be parsed.

    Either the line has a factor that is out of range, or the line is not a known event.
    """
    factor = _FACTOR.search(line)
    if factor is not None and not _FACTOR_READ.fullmatch(factor[1]):
        return f"has the factor {factor[1][:20]}; a factor must be above 0 and below 1,000, with at most three decimals"
    return "is not a known event"


def _percent(line: str, percent: str | None) -> float:
    if percent is None:
        raise UsageError(f"'{line[:60]}' lacks a percentage; use `loss 5%`, for example")
    if float(percent) > 100:
        raise UsageError(f"'{line[:60]}' is more than 100%; use at most `loss 100%`")
    return float(percent) / 100


def _replica(line: str, pool: str | None, number: str | None, pools: Sequence[ReplicaPool]) -> int:
    first = 0
    for one in pools:
        if one.name == pool and number is not None and int(number) < one.replicas:
            return first + int(number)
        first += one.replicas
    known = ", ".join(
        f"{one.name}/0 to {one.name}/{one.replicas - 1}" if one.replicas > 1 else f"{one.name}/0" for one in pools
    )
    raise UsageError(f"'{line[:60]}' names no replica of the fleet; its replicas are {known}")
