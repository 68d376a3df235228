"""What will be asked of a service, and how fast must it answer? Synthetic workloads and recorded traces."""

from penstock.workload.arrivals import Arrivals, ClosedLoop, Poisson
from penstock.workload.errors import TraceError
from penstock.workload.lengths import Fixed, Lengths, LogNormal
from penstock.workload.requests import NO_SEGMENT, Prefixes, Requests, concatenate, no_requests
from penstock.workload.slo import Slo, SloClass, parse_duration, parse_slo
from penstock.workload.trace import Trace, read_trace
from penstock.workload.workload import Workload

__all__ = [
    "NO_SEGMENT",
    "Arrivals",
    "ClosedLoop",
    "Fixed",
    "Lengths",
    "LogNormal",
    "Poisson",
    "Prefixes",
    "Requests",
    "Slo",
    "SloClass",
    "Trace",
    "TraceError",
    "Workload",
    "concatenate",
    "no_requests",
    "parse_duration",
    "parse_slo",
    "read_trace",
]
