"""Options of `preflight`."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import TYPE_CHECKING

from penstock.api.options.model_options import MODEL_HELP
from penstock.api.options.option_fields import argument, option, options
from penstock.api.progress import LOG, ProgressListener

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike
    from pathlib import Path

    from penstock.api.options.argument_types import Targets, Tokens
    from penstock.api.options.file_types import AskedFleet


@options
class PreflightOptions:
    """A checkpoint, accelerators, an engine, and optionally the user's own launch command."""

    model: str | PathLike[str] | None = argument(MODEL_HELP, default=None, values="models")
    on: Targets | None = option(
        "Accelerators, comma separated; `mi300x:8` is eight MI300X.", default=None, values="accelerators"
    )
    _: KW_ONLY
    engine: str = option("Engine: vllm, sglang, vllm-atom, sglang-atom, atom or trtllm.", default="vllm")
    engine_version: str | None = option(
        "Release of the engine. Default: the newest release that the rules were checked against.", default=None
    )
    tp: int | None = option("Tensor parallel ranks.", default=None, min=1)
    pp: int = option("Pipeline stages.", default=1, min=1)
    dp: int = option("Number of data-parallel ranks of attention. These ranks share the experts.", default=1, min=1)
    ep: bool = option("Expert parallelism: distribute whole experts over the ranks.", default=False)
    kv: str = option(
        "KV cache dtype: auto, bf16, fp16, fp8, fp8_e5m2, nvfp4, int8_per_token_head, ...; the release decides.",
        default="auto",
    )
    context: Tokens | None = option("Tokens per request: 4096, 32k, 1M.", default=None)
    command: str | None = option(
        "Check this launch command (vllm serve, sglang, docker run) instead of the command that preflight proposes.",
        default=None,
    )
    host: Mapping[str, str] | Sequence[str] = option(
        "A fact about the host, such as rocm=7.2.3, python=3.12 or install=wheel; `here`, to read this host; or a file "
        "of `penstock doctor --json`. Repeat the flag for more facts.",
        default=(),
    )
    scan: bool = option("Also read the FP8 bytes of a local checkpoint, as `penstock fp8 scan` does.", default=False)
    fleet: AskedFleet | None = option(
        "Check every pool of this fleet file, which `penstock plan --fleet` writes, instead of one deployment.",
        default=None,
    )
    rules: Path | None = option(
        "Directory of your own rules (*.toml) and data packs (*.json), which add to or replace the shipped ones.",
        default=None,
    )
    strict: bool = option(
        "Fail also on a risk, on anything that is undetermined, and on a release that was not read.", default=False
    )
    explain: bool = option(
        "Show also the kernels, the memory, the reason for each flag, the sources, and both commands.", default=False
    )
    matrix: bool = option("Check every accelerator with both engines, and print a table.", default=False)
    watch: ProgressListener = LOG
