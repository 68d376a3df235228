"""Does it fit, and what is left for the KV cache?"""

from typing import Annotated

import typer

from penstock.cli.console import show
from penstock.cli.flags.shared_flags import AsJson, Dp, Ep, Kv, Precision

EXAMPLES = """
Examples:

- `penstock fit llama-3.1-70b --on mi300x,h100,h200,b200`
- `penstock fit ./DeepSeek-R1 --on mi355x:8,b200:8 --context 128k --kv fp8`
- `penstock fit hf:Qwen/Qwen3-235B-A22B --on h200:4 --precision fp8 --json`
"""


def fit_command(
    model: Annotated[
        str, typer.Argument(help="A config.json, a checkpoint directory, a name from `catalog models`, or hf:org/name.")
    ],
    on: Annotated[
        str,
        typer.Option("--on", help="Accelerators, comma separated; `h100:2` is two of them (tp 2).", show_default=False),
    ],
    context: Annotated[
        str | None,
        typer.Option(
            "--context",
            help="Tokens per request, prompt and answer together: 4096, 32k, 1M. Left out: 8k, or the model's limit.",
        ),
    ] = None,
    precision: Precision = None,
    kv: Kv = "auto",
    tp: Annotated[
        int | None, typer.Option("--tp", min=1, help="Tensor parallel ranks, on every accelerator named.")
    ] = None,
    pp: Annotated[int, typer.Option("--pp", min=1, help="Pipeline stages.")] = 1,
    dp: Dp = 1,
    ep: Ep = False,
    engine: Annotated[str, typer.Option("--engine", help="vllm or sglang.")] = "vllm",
    engine_version: Annotated[
        str | None,
        typer.Option("--engine-version", help="Its release, such as 0.11.2: defaults and accounting differ."),
    ] = None,
    memory_fraction: Annotated[
        float | None,
        typer.Option("--memory-fraction", min=0.05, max=1.0, help="Share of the device the engine may use."),
    ] = None,
    batched_tokens: Annotated[
        int | None, typer.Option("--batched-tokens", min=1, help="Tokens of the largest step: max_num_batched_tokens.")
    ] = None,
    sequences: Annotated[
        int | None, typer.Option("--sequences", min=1, help="Requests of the largest step (max_num_seqs).")
    ] = None,
    draft: Annotated[
        bool, typer.Option("--draft", help="Load the checkpoint's own multi-token-prediction layers.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Does it fit, and what is left for the KV cache?

    One row per accelerator: weights under the split, reserves of the engine, KV tokens with their P10-P90, how many
    requests of the asked context run together, and the fewest devices that would do with tensor parallelism inside a
    node, then whole nodes in a pipeline. `tight` fits at the median of the reserves but not at their P90, `flags`
    with the engine flags that are named. Exits 1 when it does not fit on one of them.
    """
    from penstock.api.fit import fit

    answer = fit(
        model,
        on,
        context=context,
        precision=precision,
        kv=kv,
        tp=tp,
        pp=pp,
        dp=dp,
        ep=ep,
        engine=engine,
        engine_version=engine_version,
        memory_fraction=memory_fraction,
        batched_tokens=batched_tokens,
        sequences=sequences,
        draft=draft,
    )
    show(answer, as_json=as_json)


fit_command.__doc__ = f"{fit_command.__doc__}\n{EXAMPLES}"
