"""Flags that several commands share, each declared once with its help."""

from typing import Annotated

import typer

Precision = Annotated[
    str | None, typer.Option("--precision", help="Store the weights as bf16, fp16, fp8, mxfp4, nvfp4 or int4 instead.")
]
Kv = Annotated[str, typer.Option("--kv", help="KV cache dtype: auto, bf16, fp16, fp8.")]
MeasuredEngine = Annotated[
    str,
    typer.Option(
        "--engine",
        help="Whose measurements to use: vllm, vllm-atom, sglang, sglang-atom, trtllm, atom; `best` tries each.",
    ),
]
Dp = Annotated[
    int, typer.Option("--dp", metavar="N", min=1, help="Attention data-parallel ranks that share the experts.")
]
Ep = Annotated[bool, typer.Option("--ep", help="Spread whole experts over the ranks (expert parallelism).")]
Mtp = Annotated[
    bool, typer.Option("--mtp", help="Draft with the checkpoint's own multi-token-prediction layers, as measured.")
]
Prefill = Annotated[
    int,
    typer.Option(
        "--prefill", metavar="N", min=0, help="Compute prompts apart: so many more replicas that only prefill."
    ),
]
PrefillSplit = Annotated[
    str | None, typer.Option("--prefill-split", help="How each of those is split: tp8 or dp4,ep. Default: as --on.")
]
KvGbps = Annotated[
    float | None,
    typer.Option(
        "--kv-gbps", metavar="N", min=0.001, help="GB/s one of them sends KV at. Default: the links, if they reach."
    ),
]
Columns = Annotated[
    str | None,
    typer.Option("--columns", help="Which column of a trace is which: arrival=ts,unit=ms and input=, output= alike."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
