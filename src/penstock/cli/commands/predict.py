"""How fast will it be?"""

from typing import Annotated

import typer

from penstock.cli.flags.options import AsJson, Dp, Ep, Kv, MeasuredEngine, Mtp, Precision

EXAMPLES = """
Examples:

- `penstock predict deepseek-r1 --on mi355x:8,b200:8 --in 8192 --out 1024 --concurrency 64`
- `penstock predict llama-3.1-70b --on mi300x:1,h100:2 --in 4096 --out 512 --concurrency 64 --engine vllm --json`
- `penstock predict deepseek-r1 --on mi355x:8 --mtp` (its own draft layers, with the acceptance measured)
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
    light: Annotated[bool, typer.Option("--light", help="Print the speed of light instead of an estimate.")] = False,
    as_json: AsJson = False,
) -> None:
    """How fast will it be?

    Throughput, time per output token and to the first one, watts and joules per output token, with P10-P90 from errors
    on held-out measurements, what bounds a step, how far it is from the speed of light, and the nearest public
    measurements. Exits 1 when it does not fit on one of the accelerators.
    """
    from penstock.benchmark.shipped_energy import shipped_power
    from penstock.benchmark.shipped_rows import model_of, shipped_efficiencies
    from penstock.catalog import load_measurements, measurement_sources
    from penstock.cli.flags.choices import cache_choice, counted_targets, model_choice, speculation_choice, split_choice
    from penstock.performance.kinship.cases import family_of
    from penstock.performance.prediction.choose import predict_on
    from penstock.performance.prediction.energy import energy_of
    from penstock.performance.prediction.nearest import nearest_measurements

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
            load_measurements(),
            lambda row: family_of(model_of(row.model)),
            family=family_of(spec),
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
