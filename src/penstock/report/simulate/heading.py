"""Sentences about arrivals: number of requests, rate, time of day, part of the trace, and SLO attainment."""

from math import floor
from typing import Final

from penstock.simulation.scenario import hours_covered
from penstock.workload import AsRecorded, Diurnal, Trace, Workload

_ROUNDING: Final = 1e-9
_FEW_DIGITS: Final = 1e5
"""Requests per second above which all requests are said to arrive at once."""


def arrivals_sentence(workload: Workload, *, requests: int, rate_per_s: float | None, span_s: float | None) -> str:
    """Describe the number of requests and their rate, and why the rate differs from the requested one."""
    mean = rate_per_s or workload.rate_per_s
    said = f"{requests:,} request{'' if requests == 1 else 's'}"
    if workload.users:
        return f"{said}, {workload.users} users in a closed loop"
    seen = (requests - 1) / span_s if span_s else mean
    if seen:
        said += ", all at once" if seen > _FEW_DIGITS else f", {seen:,.3g} requests/s"
    return said + _of_a_day(workload, mean or 0.0, span_s) + _of_a_trace(workload, requests, rate_per_s)


def _of_a_day(workload: Workload, mean_per_s: float, span_s: float | None) -> str:
    covered = hours_covered(workload, span_s)
    if covered is None or not isinstance(workload.arrivals, Diurnal):
        return ""
    return (
        f" between {clock(covered.first)} and {clock(covered.first + covered.covered)} of a day with a mean of "
        f"{mean_per_s:,.3g}/s and a peak of {mean_per_s * workload.arrivals.peak_over_mean:,.3g}"
    )


def _of_a_trace(workload: Workload, requests: int, rate_per_s: float | None) -> str:
    """State that only the beginning of a trace is run, although the requested rate holds for the whole trace."""
    lengths = workload.lengths
    if rate_per_s is None or not isinstance(lengths, Trace) or not isinstance(workload.arrivals, AsRecorded):
        return ""
    if requests >= lengths.requests:
        return ""
    return f", the first of {lengths.requests:,} that come at {rate_per_s:,.3g}/s over the whole trace"


def clock(hour: float) -> str:
    """Format an hour of the day, with the number of days if it is on a later day."""
    days, minutes = divmod(round(hour * 60), 24 * 60)
    later = f" {days} day{'s' if days > 1 else ''} later" if days else ""
    return f"{minutes // 60:02d}:{minutes % 60:02d}{later}"


def share_kept(fraction: float) -> str:
    """Format SLO attainment, truncated and not rounded: 94.95% must not read as 95.0%."""
    return f"{floor(fraction * 1000 + _ROUNDING) / 10:.1f}%"
