"""Options of `simulate`, on one deployment or on a fleet."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import TYPE_CHECKING, ClassVar

from penstock.api.options.model_options import CALIBRATION_HELP, DeploymentOptions
from penstock.api.options.option_fields import argument, option, options
from penstock.api.progress import LOG, ProgressListener

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.api.options.argument_types import Tokens
    from penstock.api.options.calibration_choice import AskedCalibration
    from penstock.api.options.file_types import AskedFleet, AskedTrace
    from penstock.workload import Slo

COLUMNS_HELP = "Names of the trace's columns, such as arrival=ts,unit=ms,input=NAME,output=NAME."
_IN_HELP = "Prompt tokens per request if no trace is given: 1024, 8k. Default: 1024, or the mean of the fleet's routes."
_OUT_HELP = "Answer tokens per request if no trace is given: 256, 1k. Default: 256, or the mean of the fleet's routes."


@options
class WorkloadOptions:
    """The requests that are sent: a trace, or lengths and arrivals, and their SLO."""

    panel: ClassVar[str | None] = "Workload"
    _: KW_ONLY
    trace: AskedTrace | None = option(
        "A trace file: Azure, Mooncake, BurstGPT, or plain CSV, JSONL or Parquet.", default=None
    )
    columns: str | None = option(COLUMNS_HELP, default=None)
    input_tokens: Tokens | None = option(_IN_HELP, default=None, name="--in", metavar="N", show_default=False)
    output_tokens: Tokens | None = option(_OUT_HELP, default=None, name="--out", metavar="N", show_default=False)
    arrivals: str | None = option(
        "Arrival process: recorded, poisson, gamma:2 (coefficient of variation 2) or diurnal:4 (the peak rate is 4 "
        "times the lowest; the run starts at the peak, and --rate is the mean of the day). Default: `recorded` "
        "with --trace, else `poisson`.",
        default=None,
    )
    rate: float | None = option(
        "Requests per second. Arrival times of a trace are scaled to this rate.", default=None, metavar="N", min=1e-6
    )
    requests: int | None = option(
        "Number of requests. Default: as many as the trace has, or 10,000; with --think at least 5 per user.",
        default=None,
        metavar="N",
        min=1,
    )
    system_prompts: str | None = option(
        "COUNT:TOKENS. Every request begins with one of COUNT system prompts of TOKENS tokens.", default=None
    )
    slo: str | Slo | None = option("SLO: any of ttft=1s,tpot=50ms,e2e=30s,attain=95%.", default=None)
    seed: int = option("Random seed. The same seed gives the same run.", default=0, metavar="N", min=0)
    watch: ProgressListener = LOG


@options
class SimulateOptions(WorkloadOptions, DeploymentOptions):
    """A workload on replicas of one kind."""

    panel: ClassVar[str | None] = None
    _: KW_ONLY
    input_tokens: Tokens = option(_IN_HELP, default=1024, name="--in", metavar="N")
    output_tokens: Tokens = option(_OUT_HELP, default=256, name="--out", metavar="N")
    replicas: int = option("Number of replicas behind one router.", default=1, metavar="N", min=1, max=1024)
    users: int | None = option(
        "Simulate a closed loop of N users instead of arrivals. Lengths are drawn within 11% of --in and --out.",
        default=None,
        metavar="N",
        min=1,
    )
    think: str = option(
        "Mean think time of a user in a closed loop before the next request: 2s, 500ms. Think times are exponential. "
        "The first request of each user is not checked against the SLO; the users' start times are spread over one "
        "think time plus one answer. With 0s, all users start at once, as in benchmarks.",
        default="0s",
    )
    capacity: bool = option(
        "Also find the highest request rate that meets the SLO; answers then vary by 10% around --out.", default=False
    )
    route: str = option(
        "Routing between replicas: least-requests, least-tokens, round-robin.", default="least-requests"
    )
    max_num_seqs: int | None = option(
        "Maximum requests per step. Default: the engine's default.", default=None, metavar="N", min=1
    )
    max_num_batched_tokens: int | None = option(
        "Maximum tokens per step. Default: the engine's default.", default=None, metavar="N", min=1
    )
    prefix_caching: bool = option("Turn the prefix cache off.", default=True, show_default=False)
    log_steps: bool = False


@options
class SimulateFleetOptions(WorkloadOptions):
    """A workload on a fleet, with routing policies, faults, and the state that the router can see."""

    panel: ClassVar[str | None] = "Fleet"
    fleet: AskedFleet = argument("A fleet file.")
    _: KW_ONLY
    policy: str = option(
        "Routing policies to compare on the same requests, comma separated: penstock, round-robin, "
        "weighted-round-robin, least-request, in-flight-per-capacity, llm-d, llm-d-scorers, dynamo, "
        "sglang-cache-aware, static-weight.",
        default="penstock",
    )
    calibration: AskedCalibration | None = option(CALIBRATION_HELP, default=None, metavar="FILE")
    events: Sequence[str] = option(
        "A fault or load spike: 'death of h100/0 at 60s for 30s', 'slow h100/0 x3 at 60s', 'silence of h100/0 at "
        "60s', 'loss 5%', 'crowd x3 at 60s for 20s'. Repeat for more. Faults are possible in pools that both "
        "prefill and decode and use no data parallelism.",
        default=(),
        name="--event",
    )
    reports: str = option("Time between two reports from an endpoint to the router.", default="250ms")
    report_delay: str = "0ms"
    cache_delay: str = "50ms"
    pickers: int = option("Number of independent routers, which share no state.", default=1, metavar="N", min=1, max=64)
    sampled_every: int = 0
