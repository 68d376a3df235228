"""Renders a prediction: a table, the time per step for each component, and nearby measurements."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.catalog.device_prices import DevicePrice
from penstock.catalog.measurement import Measurement
from penstock.model import ModelSpec
from penstock.performance.calibration.benchmark_harness import drafted_tokens
from penstock.performance.memory.engine_settings_that_fit import engine_flags
from penstock.performance.prediction.energy_per_token import Energy
from penstock.performance.prediction.nearest_measurements import reasons_to_differ
from penstock.performance.prediction.predict_deployment import Prediction, Range
from penstock.report.correction_note import correction_note
from penstock.report.drawing.bars import Use, legend, stacked_bar
from penstock.report.drawing.comparison_table import Column, sheet
from penstock.report.predict_summary import (
    conclusion,
    deployment_name,
    setup_line,
    significant,
    what_would_serve,
)
from penstock.report.price_note import price_notes

PARTS = {
    "weights": Use("weights", "█", "cyan"),
    "experts": Use("experts", "▓", "blue"),
    "cache": Use("KV cache", "░", "green"),
    "compute": Use("compute", "▒", "yellow"),
    "prefill": Use("prefill", "▞", "magenta"),
    "collectives": Use("collectives", "═", "red"),
    "layers": Use("launches and host", "·", "bright_black"),
}

_WITH = {"exchange": "collectives", "widening": "compute"}
"""Maps a component of the step time to the component whose bar includes it.

All other components without a style of their own are drawn as launches.
"""


_COLUMNS = (
    Column("accelerator", figures=False),
    Column("engine", figures=False),
    Column("output tok/s\n(P10-P90)"),
    Column("tok/s\nper device"),
    Column("TPOT ms\n(P10-P90)"),
    Column("TTFT ms\n(P10-P90)"),
    Column("rent, $ per\nMtok out"),
    Column("J per\noutput token"),
    Column("bound by", figures=False),
    Column("of\nroofline"),
    Column("software", figures=False),
    Column("tier", figures=False),
)


def render_predictions(
    model: ModelSpec,
    predictions: Sequence[Prediction],
    energies: Sequence[Energy | None],
    nearby: Sequence[Sequence[Measurement]],
    rents: tuple[Sequence[DevicePrice | None], Sequence[Range | None]],
    width: int,
    output_tokens: int,
    *,
    explain: bool = False,
) -> RenderableType:
    """Draw the answer, with its evidence if `explain` is true.

    `rents` are the rents of the devices, and those per million output tokens.
    """
    costs = rents[1]
    table = [_row(*known, output_tokens) for known in zip(predictions, energies, costs, strict=True)]
    pieces: list[RenderableType] = [
        setup_line(model, predictions),
        Text(),
        sheet(_COLUMNS, table, width),
        Text(),
        conclusion(predictions, costs),
    ]
    if explain:
        pieces += [Text(), _bars(predictions, width), *_energy_rows(predictions, energies)]
        pieces += [price_notes(rents[0]), Text()]
        for prediction, rows in zip(predictions, nearby, strict=False):
            if prediction.serves:
                pieces.append(_near(prediction, rows))
        pieces.append(_grounds(predictions))
    pieces += _limits(predictions)
    if explain:
        pieces.append(
            Text("Watts and joules include only the devices, without host, network and cooling.", style="dim")
        )
    pieces.append(Text(_first_token_note(predictions), style="dim"))
    corrected = [
        one.stack.correction for one in predictions if one.stack is not None and one.stack.correction is not None
    ]
    pieces += [correction_note(corrected)] if corrected else []
    return Group(*pieces)


def has_tpot(output_tokens: float) -> bool:
    """Return whether a time per output token exists. A time per output token requires at least two output tokens."""
    return output_tokens > 1


def _row(prediction: Prediction, energy: Energy | None, cost: Range | None, output_tokens: int) -> list[str | Text]:
    name, engine = deployment_name(prediction), prediction.measured_engine
    if not prediction.serves:
        why = "too small" if prediction.memory.fits else "does not fit"
        return [name, engine, Text(why, style="bold red"), *("-" for _ in _COLUMNS[3:])]
    joules = None if energy is None or prediction.tier == "roofline" else energy.joules_per_output_token
    return [
        name,
        engine,
        _range_text(prediction.output_tokens_per_s, 0),
        f"{prediction.output_tokens_per_s_per_device:,.0f}",
        _range_text(prediction.tpot_s.scaled(1e3), 1) if has_tpot(output_tokens) else "-",
        "-" if prediction.ttft_s is None else _range_text(prediction.ttft_s.scaled(1e3), 0),
        "-" if cost is None else significant(cost.value),
        "-" if joules is None else significant(joules.value),
        PARTS[_resource_name(prediction.step.bound_by)].label,
        f"{prediction.roofline_s / prediction.tpot_s.value:.0%}",
        "-" if prediction.software is None else f"{prediction.software.date:%Y-%m}",
        prediction.tier,
    ]


def _range_text(value: Range, digits: int) -> Text:
    span = f"\n{value.low:,.{digits}f}-{value.high:,.{digits}f}"
    return Text.assemble(f"{value.value:,.{digits}f}", (span, "dim"))


def _resource_name(part: str) -> str:
    return part if part in PARTS else _WITH.get(part, "layers")


def _bars(every: Sequence[Prediction], width: int) -> RenderableType:
    predictions = [prediction for prediction in every if prediction.serves]
    if not predictions:
        return Text()
    longest = max(prediction.step.seconds for prediction in predictions)
    names = max(len(deployment_name(prediction)) for prediction in predictions)
    room = max(20, min(width, 110) - names - len(_step(longest)) - 2)
    grid = Table.grid(padding=(0, 1))
    for prediction in predictions:
        shares: dict[str, float] = dict.fromkeys(PARTS, 0.0)
        for part, seconds in prediction.step.parts_s.items():
            shares[_resource_name(part)] += seconds
        whole = prediction.step.seconds
        parts = [(PARTS[name], seconds) for name, seconds in shares.items()]
        bar = stacked_bar(parts, full=whole, width=max(1, round(room * whole / longest)))
        grid.add_row(deployment_name(prediction), bar, Text(_step(whole), style="dim"))
    return Group(grid, legend(list(PARTS.values())), Text())


def _step(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f} ms per step"


_UNSEEN = {
    "split": "measured with this model, format and engine",
    "model": "measured with other models",
    "accelerator": "measured on other accelerators of the vendor",
    "vendor": "measured on accelerators of other vendors",
}


def _energy_rows(predictions: Sequence[Prediction], energies: Sequence[Energy | None]) -> list[RenderableType]:
    grid = Table.grid(padding=(0, 1))
    for prediction, energy in zip(predictions, energies, strict=True):
        if not prediction.serves or prediction.tier == "roofline":
            continue
        name = deployment_name(prediction)
        if energy is None:
            grid.add_row(name, Text("power unknown: the catalog has no board power for this accelerator", style="dim"))
            continue
        watts, joules = energy.device_watts, energy.joules_per_output_token
        line = Text(f"{watts.value:,.0f} W per device ")
        line.append(f"({watts.low:,.0f}-{watts.high:,.0f})", style="dim")
        line.append(f", {significant(joules.value)} J per output token ")
        line.append(f"({significant(joules.low)}-{significant(joules.high)})", style="dim")
        grounds = energy.source if energy.tier == "measured" else f"{_UNSEEN[energy.unseen]}; {energy.source}"
        line.append(f"\n{energy.tier}: {grounds}", style="dim")
        grid.add_row(name, line)
    return [grid, Text()] if grid.row_count else []


def _drafts(row: Measurement) -> str:
    tokens = drafted_tokens(row)
    return "" if not row.drafted else ", drafting" if tokens is None else f", {tokens} drafted"


def _near(prediction: Prediction, rows: Sequence[Measurement]) -> Text:
    where = deployment_name(prediction)
    if not rows:
        return Text(f"{where}: no public serving measurement of this model family", style="dim")
    text = Text(f"{where}, nearest public measurements:", style="dim")
    for row in rows:
        tpot = f"{row.tpot_s * 1e3:.1f} ms" if row.tpot_s is not None else "-"
        day = row.date.isoformat() if row.dated == "day" else f"until {row.date}"
        joules = f", {row.joules_per_output_token:.3g} J/token" if row.joules_per_output_token else ""
        text.append(
            f"\n  {day} {' '.join(filter(None, (row.engine, row.version)))} x{row.devices} {row.weights}, "
            f"{row.input_tokens:,.0f} in/{row.output_tokens:,.0f} out, {row.concurrency:,.0f} users{_drafts(row)}: "
            f"TPOT {tpot}{joules} ({row.source})",
            style="dim",
        )
        reasons = reasons_to_differ(prediction, row)
        if reasons:
            text.append(f"; other {', '.join(reasons)} than predicted", style="dim")
    return text


def _grounds(predictions: Sequence[Prediction]) -> Text:
    """Say for each deployment which measurements support the prediction."""
    new = {"shape": "this setup with other lengths", "configuration": "this model with another split or format"}
    lines = []
    for prediction in predictions:
        if prediction.memory.obstacle is None:
            grounds = " > ".join(prediction.borrowed_from) or "no measurements"
            seen = new.get(prediction.novelty, f"only another {prediction.novelty}")
            if prediction.seen.rows:
                seen = f"this setup, {prediction.seen.rows:,} rows"
            software = "" if prediction.software is None else f"; software of {prediction.software.date}"
            lines.append(f"{deployment_name(prediction)}: estimated from {grounds}; measured: {seen}{software}")
    return Text("\n".join(lines), style="dim")


def _limits(predictions: Sequence[Prediction]) -> list[Text]:
    """Say what does not fit and why, what fits only with other settings, and how many requests run."""
    lines = []
    for prediction in predictions:
        name, obstacle = deployment_name(prediction), prediction.memory.obstacle
        if prediction.serves:
            said = [f"{name}: {'; '.join(notes)}"] if (notes := _settings(prediction)) else []
        elif (shorter := _shorter_prompt(prediction)) is not None:
            said = [f"{name}: {shorter}"]
        else:
            said = [what_would_serve(prediction)] if any(one.serves for one in predictions) else []
            said += [f"{name}: {obstacle.reason}; `penstock fit` lists what would fit"] if obstacle is not None else []
        lines += [Text(line, style="dim") for line in said]
    return lines


def _settings(prediction: Prediction) -> list[str]:
    """Name drafted tokens, engine flags and a limit on running requests, where they differ from what was asked."""
    notes, drafts, flags = [], prediction.speculation, engine_flags(prediction.deployment)
    if drafts is not None:
        accepted = f"{drafts.accepted_tokens:.2f} accepted per step, {drafts.grounds}"
        notes.append(f"{drafts.drafted_tokens} tokens drafted, {accepted}")
    if flags:
        notes.append(f"fits with {prediction.deployment.engine.name} {' '.join(flags)}")
    if prediction.running < prediction.concurrency:
        notes.append(f"only {prediction.running:,.0f} of {prediction.concurrency:,.0f} requests run concurrently")
    return notes


def _first_token_note(predictions: Sequence[Prediction]) -> str:
    """Say which statistic of which benchmark the times to first token are."""
    names: dict[str, list[str]] = {}
    for prediction in predictions:
        if prediction.ttft_s is not None and prediction.serves:
            names.setdefault(prediction.ttft_statistic, []).append(deployment_name(prediction))
    if not names:
        return ""
    which = " and ".join(
        f"the {statistic}" + (f" ({', '.join(where)})" if len(names) > 1 else "") for statistic, where in names.items()
    )
    return (
        f"TTFT is {which} over the requests of a benchmark in which all users start at once and send ten requests "
        "each; `penstock simulate` gives it for other loads."
    )


def _shorter_prompt(prediction: Prediction) -> str | None:
    """Say how long a prompt may be. None if the request is within the model's context limit."""
    limit, asked = prediction.deployment.model.max_context_tokens, prediction.memory.context_tokens
    if limit is None or asked <= limit:
        return None
    exceeded = f"a request of {asked:,} tokens exceeds the model's context limit of {limit:,}"
    room = limit - round(prediction.load.output_tokens)
    return f"{exceeded}; use --in {room} or less" if room > 0 else f"{exceeded}; reduce --out below {limit}"
