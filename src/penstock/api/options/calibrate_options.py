"""Options of `calibrate`."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import TYPE_CHECKING, ClassVar

from penstock.api.options.model_options import DeploymentOptions
from penstock.api.options.option_fields import argument, option, options
from penstock.api.progress import LOG, ProgressListener

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@options
class CalibrateOptions:
    """Runs of a load tool, and the setup that they measured.

    Result files state neither the precision of weights and cache nor the engine, so these have no default.
    """

    panel: ClassVar[str | None] = None
    files: Sequence[str | Path] = argument(
        "Result files of a load tool, folders that a load tool wrote, or the metrics page of a running gateway."
    )
    on: str = option("The accelerator and its devices per replica, such as h100:2.", show_default=False)
    engine: str = option("Engine: vllm, sglang, vllm-atom, sglang-atom, atom or trtllm.", show_default=False)
    precision: str = option("Weight format: bf16, fp16, fp8, mxfp4, nvfp4 or int4.", show_default=False)
    kv: str = option("KV cache dtype: bf16, fp16 or fp8.", show_default=False)
    _: KW_ONLY
    model: str | None = option("Model as in `catalog models`. Default: the name that the files state.", default=None)
    engine_version: str | None = option("Release of the engine, kept in the calibration file.", default=None)
    dp: int = option("Number of data-parallel ranks of attention.", default=1, min=1)
    ep: bool = option("Expert parallelism: whole experts were distributed over the ranks.", default=False)
    pool: str | None = option("Pool of the gateway. Default: its only pool.", default=None)
    seconds: float = option("Longest time to watch the gateway, in seconds.", default=120.0, min=1)
    plan: Path | str | None = option(
        "Plan file. The next run is then the one that says most about the loads of this plan.",
        default=None,
        metavar="FILE",
    )
    accept_doubtful: bool = option("Use runs although their times are implausible for the stated setup.", default=False)
    shared_prefixes: bool = option("The prompts share prefixes on purpose. Accept cache hits.", default=False)
    watch: ProgressListener = LOG

    def deployment(self, model: str) -> DeploymentOptions:
        """Return the options of the measured deployment."""
        return DeploymentOptions(
            model, self.on, precision=self.precision, kv=self.kv, dp=self.dp, ep=self.ep, engine=self.engine
        )
