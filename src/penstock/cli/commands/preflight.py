"""Will it run here, will it be right, and with which flags?"""

from typing import Annotated

import typer

from penstock.cli.flags.shared_flags import AsJson
from penstock.errors import UsageError

EXAMPLES = """
Examples:

- `penstock preflight deepseek-r1 --on mi300x:8`
- `penstock preflight ./my-checkpoint --on mi325x,h200 --engine vllm --engine-version 0.24.0 --kv fp8`
- `penstock preflight gpt-oss-120b --on mi300x --command "vllm serve openai/gpt-oss-120b --swap-space 4"`
- `penstock preflight gpt-oss-120b --matrix  # every accelerator, both engines`
- `penstock preflight --probe http://127.0.0.1:8000 --save-reference h100.json`, then on the other vendor
  `penstock preflight --probe http://127.0.0.1:8001 --reference h100.json`
"""


def preflight_command(
    model: Annotated[
        str | None,
        typer.Argument(help="A config.json, a checkpoint directory, a name from `catalog models`, or hf:org/name."),
    ] = None,
    on: Annotated[
        str | None, typer.Option("--on", help="Accelerators, comma separated; `mi300x:8` is eight of them.")
    ] = None,
    engine: Annotated[str, typer.Option("--engine", help="vllm or sglang.")] = "vllm",
    engine_version: Annotated[
        str | None, typer.Option("--engine-version", help="Its release; left out, the newest whose source was read.")
    ] = None,
    tp: Annotated[int | None, typer.Option("--tp", min=1, help="Tensor parallel ranks.")] = None,
    pp: Annotated[int, typer.Option("--pp", min=1, help="Pipeline stages.")] = 1,
    dp: Annotated[int, typer.Option("--dp", min=1, help="Attention data-parallel ranks that share the experts.")] = 1,
    ep: Annotated[bool, typer.Option("--ep", help="Spread whole experts over the ranks.")] = False,
    kv: Annotated[str, typer.Option("--kv", help="KV cache dtype: auto, bf16, fp8, fp8_e4m3, fp8_e5m2.")] = "auto",
    context: Annotated[str | None, typer.Option("--context", help="Tokens per request: 4096, 32k, 1M.")] = None,
    command: Annotated[
        str | None,
        typer.Option("--command", help="A launch line of yours (vllm serve, sglang, docker run) to check instead."),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option("--host", help="What is under the engine: rocm=7.2.3, python=3.12, install=wheel, ..."),
    ] = None,
    scan: Annotated[
        bool, typer.Option("--scan", help="Read the FP8 bytes as well (`penstock fp8 scan`), for a local checkpoint.")
    ] = False,
    matrix: Annotated[bool, typer.Option("--matrix", help="Every accelerator and both engines, as a table.")] = False,
    probe: Annotated[
        str | None, typer.Option("--probe", help="Ask a running OpenAI-compatible endpoint instead: its base URL.")
    ] = None,
    reference: Annotated[
        str | None, typer.Option("--reference", help="With --probe: compare with this file of --save-reference.")
    ] = None,
    against: Annotated[
        str | None, typer.Option("--against", help="With --probe: compare with a second endpoint (the other vendor).")
    ] = None,
    save_reference: Annotated[
        str | None, typer.Option("--save-reference", help="With --probe: write what it answers to this file.")
    ] = None,
    served_model: Annotated[
        str | None, typer.Option("--served-model", help="With --probe: the name it serves; left out, the first listed.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Will this checkpoint run here, will it be right, and with which flags?

    Reads the config and safetensors headers, never the weights. Findings are grouped by how they fail: silent-wrong
    (answers come back and are wrong), blocker, slow, info; a rule that cannot be decided is shown with what would
    settle it. Exits 1 on silent-wrong or blocker. With --probe it asks a running server and compares log-probabilities.
    """
    if probe is not None:
        from penstock.cli.commands.probe import run_probe

        run_probe(
            probe, reference=reference, against=against, save=save_reference, served=served_model, as_json=as_json
        )
        return
    for name, given in (("--reference", reference), ("--against", against), ("--save-reference", save_reference)):
        if given is not None:
            raise UsageError(f"{name} belongs to --probe URL")
    from penstock.api.preflight import preflight
    from penstock.cli.console import Watch, show

    with Watch() as watch:
        answer = preflight(
            model,
            on,
            engine=engine,
            engine_version=engine_version,
            tp=tp,
            pp=pp,
            dp=dp,
            ep=ep,
            kv=kv,
            context=context,
            command=command,
            host=host or (),
            scan=scan,
            matrix=matrix,
            watch=watch,
        )
    show(answer, as_json=as_json)


preflight_command.__doc__ = f"{preflight_command.__doc__}\n{EXAMPLES}"
