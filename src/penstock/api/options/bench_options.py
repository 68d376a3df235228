"""Options of `bench`."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import TYPE_CHECKING, ClassVar

from penstock.api.options.option_fields import argument, option, options
from penstock.api.progress import LOG, ProgressListener

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@options
class BenchOptions:
    """Servers to measure, and the load that they must serve."""

    panel: ClassVar[str | None] = None
    file: Path | str = argument("A plan file, or an acceptance benchmark that `plan --rfp` writes.")
    target: Sequence[str] = option(
        "Server to measure, as NAME=URL. Repeat for more. In an acceptance benchmark, NAME is a vendor, an accelerator "
        "or a case.",
        metavar="NAME=URL",
    )
    _: KW_ONLY
    to: Path | str = option("Folder for requests, result files and the certificate.", default="bench", metavar="DIR")
    tool: str | None = option("Load tool: aiperf or vllm. Default: the first that is installed.", default=None)
    rate: float | None = option("Requests per second, for a plan file.", default=None, min=1e-6)
    requests: int | None = option("Requests per run, for a plan file. [default: 300]", default=None, min=2)
    workload: str | None = option("Workload of the plan file. Default: its only workload.", default=None)
    repeats: int = option("Repetitions of each load.", default=3, min=1, max=100)
    seed: int = option("Seed of the requests.", default=0, min=0)
    tokenizer: str | None = option("Folder or name of the servers' tokenizer, for the load tool.", default=None)
    accept: Sequence[str] = option(
        "Mark a difference between the servers in this fact instead of refusing it. Repeat for more.",
        default=(),
        metavar="FACT",
    )
    usd_per_hour: Sequence[str] = option(
        "Price of a target, as NAME=DOLLARS. Repeat for more.", default=(), metavar="NAME=USD"
    )
    dry_run: bool = option("Print the commands of the load tool, and run nothing.", default=False)
    watch: ProgressListener = LOG
