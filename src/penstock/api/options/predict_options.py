"""Options of `predict` and `sweep`."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import TYPE_CHECKING

from penstock.api.options.model_options import DeploymentOptions
from penstock.api.options.option_fields import option, options

if TYPE_CHECKING:
    from penstock.api.options.argument_types import Loads, Tokens


@options
class ClosedLoopOptions(DeploymentOptions):
    """A deployment under a closed loop of users, without the number of users."""

    _: KW_ONLY
    input_tokens: Tokens = option("Prompt tokens per request: 1024, 8k.", default=1024, name="--in", metavar="N")
    output_tokens: Tokens = option("Answer tokens per request: 1024, 8k.", default=1024, name="--out", metavar="N")
    drafted: int = option(
        "Number of draft tokens per step. With 0, nothing is drafted, except that --mtp drafts as many as measured "
        "runs.",
        default=0,
        min=0,
    )
    accepted: float | None = option(
        "With --drafted or --mtp: mean number of output tokens per request and step.", default=None, min=1
    )
    replicas: int = option("With --prefill: number of replicas that only decode.", default=1, min=1, max=1024)
    roofline: bool = option("Print the hardware limit (roofline) instead of an estimate.", default=False)
    explain: bool = option(
        "Show also the time of a step by component, power, the sources of rents, and the nearest public measurements.",
        default=False,
    )


@options
class PredictOptions(ClosedLoopOptions):
    """A deployment under a closed loop of users."""

    _: KW_ONLY
    concurrency: int = option("Number of requests in flight, in a closed loop.", default=64, min=1)


@options
class SweepOptions(ClosedLoopOptions):
    """A deployment under closed loops of several numbers of users."""

    _: KW_ONLY
    concurrency: Loads = option(
        "Number of requests in flight, in a closed loop. A list such as 1,4,16,64 prints a curve of throughput per "
        "device over speed per user.",
        default=64,
        metavar="N[,N...]",
    )
