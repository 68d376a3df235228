"""Writes sentences about arrivals: number of requests, rate, time of day, and the simulated part of a trace."""

from typing import Final

from penstock.simulation.scenario import hours_covered
from penstock.workload import AsRecorded, Diurnal, Trace, Workload

_FEW_DIGITS: Final = 1e5
"""Maximum rate in requests per second that is printed.

At higher rates, the text says that all requests arrive at once.
"""


def arrivals_sentence(workload: Workload, *, requests: int, rate_per_s: float | None, span_s: float | None) -> str:
    """Describe the number of requests and their rate, and why the rate differs from the requested rate."""
    mean = rate_per_s or workload.rate_per_s
    text = f"{requests:,} request{'' if requests == 1 else 's'}"
    if workload.users:
        return f"{text}, {workload.users} users in a closed loop"
    actual = (requests - 1) / span_s if span_s else mean
    if actual:
        text += ", all at once" if actual > _FEW_DIGITS else f", {actual:,.3g} requests/s"
    return text + _of_a_day(workload, mean or 0.0, span_s) + _of_a_trace(workload, requests, rate_per_s)


def _of_a_day(workload: Workload, mean_per_s: float, span_s: float | None) -> str:
    covered = hours_covered(workload, span_s)
    if covered is None or not isinstance(workload.arrivals, Diurnal):
        return ""
    return (
        f" between {clock(covered.first)} and {clock(covered.first + covered.covered)} of a day with a mean of "
        f"{mean_per_s:,.3g}/s and a peak of {mean_per_s * workload.arrivals.peak_over_mean:,.3g}"
    )


def _of_a_trace(workload: Workload, requests: int, rate_per_s: float | None) -> str:
    """State that only the beginning of a trace is simulated. The requested rate is the mean rate of the whole trace."""
    lengths = workload.lengths
    if rate_per_s is None or not isinstance(lengths, Trace) or not isinstance(workload.arrivals, AsRecorded):
        return ""
    if requests >= lengths.requests:
        return ""
    return f", the first of {lengths.requests:,} requests; the whole trace has {rate_per_s:,.3g} requests/s"


def clock(hour: float) -> str:
    """Format an hour of the day. If the hour is on a later day, the text also says how many days later."""
    days, minutes = divmod(round(hour * 60), 24 * 60)
    later = f" {days} day{'s' if days > 1 else ''} later" if days else ""
    return f"{minutes // 60:02d}:{minutes % 60:02d}{later}"
