"""Options of `guide`."""

from __future__ import annotations

from dataclasses import KW_ONLY, field
from typing import TYPE_CHECKING

from penstock.api.options.option_fields import argument, option, options
from penstock.api.progress import LOG, ProgressListener

if TYPE_CHECKING:
    from os import PathLike


@options
class GuideOptions:
    """A model or a guide file, and the axes of the grid."""

    what: str | PathLike[str] = argument("A model, or a guide file (.yaml); `--init` prints an example.")
    _: KW_ONLY
    prompts: str | None = option(
        "Input tokens, as a list: 1k,4k,16k. Default: 1k,4k,16k,64k up to the model's context.", default=None
    )
    outputs: str | None = option("Output tokens, as a list. Default: 256.", default=None)
    loads: str | None = option(
        "Requests per second at the peak, as a list: 0.5,2,8. Default: 0.25,1,4,16,64.", default=None
    )
    slo: str | None = option(
        "SLO of every workload. Default: ttft=2s,tpot=60ms,attain=95%, with 250 ms more for the first token per 1,000 "
        "input tokens; an SLO that you state is used as it is.",
        default=None,
    )
    on: str | None = option(
        "Accelerators to compare, as a list: mi300x,h100. Default: every verified one with a price.", default=None
    )
    weights: str | None = option(
        "Weight formats to consider, as a list: checkpoint,fp8. Default: the checkpoint's own.", default=None
    )
    trace: str | None = option(
        "A trace (CSV, JSONL or Parquet) that gives prompts, output and load of the grid.", default=None
    )
    watch: ProgressListener = field(default=LOG)
