"""Options of `fit`, `predict` and `simulate` about the model, its accelerators and how it is served."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import TYPE_CHECKING, ClassVar

from penstock.api.options.option_fields import argument, option, options

if TYPE_CHECKING:
    from penstock.api.options.argument_types import AskedModel, Targets
    from penstock.api.options.calibration_choice import AskedCalibration

CALIBRATION_HELP = "Files of `penstock calibrate`, comma separated. Each corrects the setup that it measured."
MODEL_HELP = "A config.json, a checkpoint directory, a name from `catalog models`, or hf:org/name."


@options
class ModelOptions:
    """A model on accelerators."""

    panel: ClassVar[str | None] = "Deployment"
    model: AskedModel = argument(MODEL_HELP, values="models")
    on: Targets = option(
        "Accelerators, comma separated; `h100:2` is two per replica, `own.toml` is a file that describes another one.",
        show_default=False,
        values="accelerators",
    )
    _: KW_ONLY
    precision: str | None = option(
        "Weight format: bf16, fp16, fp8, mxfp4, nvfp4 or int4. Default: the format of the checkpoint.", default=None
    )
    kv: str = option("KV cache dtype: auto, bf16, fp16, fp8.", default="auto")
    dp: int = option(
        "Number of data-parallel ranks of attention. These ranks share the experts.", default=1, metavar="N", min=1
    )
    ep: bool = option("Expert parallelism: distribute whole experts over the ranks.", default=False)


@options
class DeploymentOptions(ModelOptions):
    """A model on accelerators, with the measured engine, draft layers and disaggregated prefill."""

    panel: ClassVar[str | None] = "Deployment"
    _: KW_ONLY
    engine: str = option(
        "Engine whose measurements are used: vllm, vllm-atom, sglang, sglang-atom, trtllm, atom; `best` uses the "
        "engine that was measured fastest.",
        default="best",
    )
    calibration: AskedCalibration | None = option(CALIBRATION_HELP, default=None, metavar="FILE")
    mtp: bool = option(
        "Draft with the checkpoint's own multi-token-prediction layers, at the measured acceptance rate.", default=False
    )
    prefill: int = option(
        "Disaggregated prefill: number of replicas that only prefill. All other replicas only decode.",
        default=0,
        metavar="N",
        min=0,
    )
    prefill_split: str | None = option(
        "Split of each prefill replica, such as `tp8` or `dp4,ep`. Default: the split of a decode replica.",
        default=None,
    )
    kv_gbps: float | None = option(
        "KV transfer bandwidth of one prefill replica, in GB/s. Default: bandwidth of the links between replicas.",
        default=None,
        metavar="N",
        min=0.001,
    )
