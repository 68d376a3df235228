"""What will be asked of a service, and how fast must it answer? Synthetic workloads and recorded traces."""

from penstock.errors import TraceError
from penstock.workload.arrivals import Arrivals, AsRecorded, ClosedLoop, Diurnal, Gamma, Poisson, day_curve
from penstock.workload.describe import TraceSummary, WorkloadSummary, describe, describe_trace
from penstock.workload.fit import LogNormalFit, fit_empirical, fit_log_normal
from penstock.workload.lengths import Empirical, Fixed, Lengths, LogNormal, Uniform, uniform_around, uniform_below
from penstock.workload.recording import CountProgress, Recording, Records, mean_rate_per_s
from penstock.workload.requests import NO_SEGMENT, Prefixes, Requests, concatenate, no_requests
from penstock.workload.sharing import Conversations, Sharing, SystemPrompts
from penstock.workload.slo import Slo, SloClass, parse_duration, parse_slo
from penstock.workload.splice import repeat
from penstock.workload.trace import Trace, read_trace
from penstock.workload.workload import Workload, replay

__all__ = [
    "NO_SEGMENT",
    "Arrivals",
    "AsRecorded",
    "ClosedLoop",
    "Conversations",
    "CountProgress",
    "Diurnal",
    "Empirical",
    "Fixed",
    "Gamma",
    "Lengths",
    "LogNormal",
    "LogNormalFit",
    "Poisson",
    "Prefixes",
    "Recording",
    "Records",
    "Requests",
    "Sharing",
    "Slo",
    "SloClass",
    "SystemPrompts",
    "Trace",
    "TraceError",
    "TraceSummary",
    "Uniform",
    "Workload",
    "WorkloadSummary",
    "concatenate",
    "day_curve",
    "describe",
    "describe_trace",
    "fit_empirical",
    "fit_log_normal",
    "mean_rate_per_s",
    "no_requests",
    "parse_duration",
    "parse_slo",
    "read_trace",
    "repeat",
    "replay",
    "uniform_around",
    "uniform_below",
]
