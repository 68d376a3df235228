"""Workloads and SLOs: synthetic requests, recorded traces, and limits on response times."""

from penstock.workload.recorded.recording import CountProgress, Records
from penstock.workload.recorded.trace import Trace, read_trace, require_whole, usable_rows_sentence
from penstock.workload.recorded.trace_formats import parse_columns
from penstock.workload.requests import Prefixes, Requests
from penstock.workload.slo import Overload, Slo, SloClass, parse_duration, parse_slo
from penstock.workload.summary.describe import TraceSummary, WorkloadSummary, describe, describe_trace
from penstock.workload.summary.length_fit import LogNormalFit, fit_empirical, fit_log_normal
from penstock.workload.synthetic.arrivals import Arrivals, AsRecorded, ClosedLoop, Diurnal, Gamma, Poisson, day_curve
from penstock.workload.synthetic.lengths import Empirical, Fixed, LogNormal, Uniform, draw_as_benchmarks, vary_answers
from penstock.workload.synthetic.sharing import Conversations, SystemPrompts
from penstock.workload.workload_spec import Workload

__all__ = [
    "Arrivals",
    "AsRecorded",
    "ClosedLoop",
    "Conversations",
    "CountProgress",
    "Diurnal",
    "Empirical",
    "Fixed",
    "Gamma",
    "LogNormal",
    "LogNormalFit",
    "Overload",
    "Poisson",
    "Prefixes",
    "Records",
    "Requests",
    "Slo",
    "SloClass",
    "SystemPrompts",
    "Trace",
    "TraceSummary",
    "Uniform",
    "Workload",
    "WorkloadSummary",
    "day_curve",
    "describe",
    "describe_trace",
    "draw_as_benchmarks",
    "fit_empirical",
    "fit_log_normal",
    "parse_columns",
    "parse_duration",
    "parse_slo",
    "read_trace",
    "require_whole",
    "usable_rows_sentence",
    "vary_answers",
]
