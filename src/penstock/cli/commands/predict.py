"""How fast will it be?"""

from typing import Annotated

import typer

from penstock.cli.console import show
from penstock.cli.flags.shared_flags import (
    AsJson,
    Dp,
    Ep,
    Kv,
    KvGbps,
    MeasuredEngine,
    Mtp,
    Precision,
    Prefill,
    PrefillSplit,
)

EXAMPLES = """
Examples:

- `penstock predict deepseek-r1 --on mi355x:8,b200:8 --in 8192 --out 1024 --concurrency 64`
- `penstock predict llama-3.1-70b --on mi300x:1,h100:2 --in 4096 --out 512 --concurrency 64 --engine vllm --json`
- `penstock predict deepseek-r1 --on mi355x:8 --mtp  # its own draft layers, with the acceptance measured`
- `penstock predict deepseek-r1 --on gb200:8 --ep --replicas 4 --prefill 1 --prefill-split dp8,ep --concurrency 128`
- `penstock predict ./my-model --on mi300x --light  # the speed of light: a bound, not an estimate`
"""


def predict_command(
    model: Annotated[
        str, typer.Argument(help="A config.json, a checkpoint directory, a name from `catalog models`, or hf:org/name.")
    ],
    on: Annotated[
        str, typer.Option("--on", help="Accelerators, comma separated; `h100:2` is two of them.", show_default=False)
    ],
    input_tokens: Annotated[
        str, typer.Option("--in", metavar="N", help="Prompt tokens per request: 1024, 8k.")
    ] = "1024",
    output_tokens: Annotated[
        str, typer.Option("--out", metavar="N", help="Answer tokens per request: 1024, 8k.")
    ] = "1024",
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, help="Requests in flight, in a closed loop.")
    ] = 64,
    precision: Precision = None,
    kv: Kv = "auto",
    engine: MeasuredEngine = "best",
    dp: Dp = 1,
    ep: Ep = False,
    mtp: Mtp = False,
    drafted: Annotated[
        int,
        typer.Option(
            "--drafted",
            min=0,
            help="Speculative tokens proposed per step (0: none; with --mtp: as measured runs of such a setup).",
        ),
    ] = 0,
    accepted: Annotated[
        float | None, typer.Option("--accepted", min=1, help="Tokens a step yields per request with --drafted.")
    ] = None,
    prefill: Prefill = 0,
    prefill_split: PrefillSplit = None,
    replicas: Annotated[
        int, typer.Option("--replicas", min=1, max=1024, help="With --prefill: replicas that only decode.")
    ] = 1,
    kv_gbps: KvGbps = None,
    light: Annotated[bool, typer.Option("--light", help="Print the speed of light instead of an estimate.")] = False,
    as_json: AsJson = False,
) -> None:
    """How fast will it be?

    Throughput, time per output token and to the first one, watts and joules per output token, with P10-P90 from errors
    on held-out measurements, what bounds a step, how far it is from the speed of light, and the nearest public
    measurements. Exits 1 when it does not fit on one of the accelerators.
    """
    from penstock.api.predict import predict

    answer = predict(
        model,
        on,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        concurrency=concurrency,
        precision=precision,
        kv=kv,
        engine=engine,
        dp=dp,
        ep=ep,
        mtp=mtp,
        drafted=drafted,
        accepted=accepted,
        prefill=prefill,
        prefill_split=prefill_split,
        replicas=replicas,
        kv_gbps=kv_gbps,
        light=light,
    )
    show(answer, as_json=as_json)


predict_command.__doc__ = f"{predict_command.__doc__}\n{EXAMPLES}"
