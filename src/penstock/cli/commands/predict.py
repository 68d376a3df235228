"""How fast will it be?"""

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.flags.options import (
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

if TYPE_CHECKING:
    from penstock.cli.flags.placing import Placing

EXAMPLES = """
Examples:

- `penstock predict deepseek-r1 --on mi355x:8,b200:8 --in 8192 --out 1024 --concurrency 64`
- `penstock predict llama-3.1-70b --on mi300x:1,h100:2 --in 4096 --out 512 --concurrency 64 --engine vllm --json`
- `penstock predict deepseek-r1 --on mi355x:8 --mtp` (its own draft layers, with the acceptance measured)
- `penstock predict deepseek-r1 --on gb200:8 --ep --replicas 4 --prefill 1 --prefill-split dp8,ep --concurrency 128`
- `penstock predict ./my-model --on mi300x --light` (the speed of light: a bound, not an estimate)
"""


def predict_command(
    model: Annotated[
        str, typer.Argument(help="A config.json, a checkpoint directory, a name from `catalog models`, or hf:org/name.")
    ],
    on: Annotated[
        str, typer.Option("--on", help="Accelerators, comma separated; `h100:2` is two of them.", show_default=False)
    ],
    input_tokens: Annotated[int, typer.Option("--in", min=1, help="Prompt tokens per request.")] = 1024,
    output_tokens: Annotated[int, typer.Option("--out", min=1, help="Answer tokens per request.")] = 1024,
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
        int, typer.Option("--drafted", min=0, help="Speculative tokens proposed per step (0: none; 3 with --mtp).")
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
    from penstock.benchmark.shipped_energy import shipped_power
    from penstock.benchmark.shipped_rows import shape_of_name, shipped_efficiencies
    from penstock.catalog import load_measurements, measurement_sources
    from penstock.cli.flags.choices import cache_choice, counted_targets, model_choice, speculation_choice, split_choice
    from penstock.performance.kinship.cases import shape_of
    from penstock.performance.prediction.choose import predict_on
    from penstock.performance.prediction.energy import energy_of
    from penstock.performance.prediction.nearest import nearest_measurements

    if prefill:
        if drafted or light:
            raise typer.BadParameter("prompts apart go neither with --drafted nor with --light", param_hint="--prefill")
        placing = _placing(model, precision, kv, engine, dp=dp, ep=ep, prefill_split=prefill_split)
        _predict_apart(placing, on, (input_tokens, output_tokens, concurrency), (prefill, replicas), kv_gbps, as_json)
        return
    targets = counted_targets(on)
    spec = model_choice(model, precision)
    speculate = speculation_choice(spec, mtp=mtp, drafted=drafted, accepted=accepted)
    efficiencies = None if light else shipped_efficiencies()
    predictions = [
        predict_on(
            spec,
            part,
            split_choice(part, devices, tp=None, pp=1, dp=dp, ep=ep),
            cache_dtype=cache_choice(kv),
            measured_engine=engine.strip().lower(),
            load=(input_tokens, output_tokens, concurrency),
            efficiencies=efficiencies,
            speculate=speculate,
        )
        for part, devices in targets
    ]
    nearby = {
        number: nearest_measurements(
            prediction,
            load_measurements(prediction.deployment.accelerator.id),
            lambda row: shape_of_name(row.model),
            family=shape_of(spec),
            input_tokens=input_tokens,
            output_tokens=output_tokens,
        )
        for number, prediction in enumerate(predictions)
    }
    energies = [energy_of(prediction, shipped_power()) for prediction in predictions]
    if as_json:
        from penstock.report.drawing.plain import to_json
        from penstock.report.predict import prediction_document

        typer.echo(to_json(prediction_document(spec, predictions, energies, nearby, measurement_sources())))
    else:
        from penstock.cli.terminal import stdout
        from penstock.report.predict import render_predictions

        console = stdout()
        console.print(render_predictions(spec, predictions, energies, nearby, console.width))
    if not all(prediction.memory.fits for prediction in predictions):
        raise typer.Exit(1)


predict_command.__doc__ = f"{predict_command.__doc__}\n{EXAMPLES}"


def _placing(
    model: str, precision: str | None, kv: str, engine: str, *, dp: int, ep: bool, prefill_split: str | None
) -> "Placing":
    from penstock.cli.flags.placing import Placing

    return Placing(
        model=model,
        precision=precision,
        cache=kv,
        engine=engine.strip().lower(),
        dp=dp,
        ep=ep,
        max_sequences=None,
        max_batched_tokens=None,
        prefix_caching=True,
        prefill_split=prefill_split,
    )


def _predict_apart(
    placing: "Placing",
    on: str,
    load: tuple[int, int, int],
    replicas: tuple[int, int],
    kv_gbps: float | None,
    as_json: bool,
) -> None:
    """Prompts and answers on replicas of their own."""
    from penstock.cli.flags.choices import counted_targets
    from penstock.report.disaggregated import disaggregated_document, render_disaggregated

    *tokens, users = load
    predictions = [
        placing.predict_apart(
            part, placing.split_apart(part, devices, replicas, kv_gbps), (tokens[0], tokens[1]), users
        )
        for part, devices in counted_targets(on)
    ]
    if as_json:
        from penstock.report.drawing.plain import to_json

        typer.echo(to_json(disaggregated_document(placing.spec, predictions)))
    else:
        from penstock.cli.terminal import stdout

        stdout().print(render_disaggregated(placing.spec, predictions))
    if not all(prediction.fits for prediction in predictions):
        raise typer.Exit(1)
