"""Renders a prediction for disaggregated prefill and decode.

The output has a table, the name of the saturated pool, and the evidence.
"""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from penstock.model import ModelSpec
from penstock.performance.disaggregated.disaggregated_prediction import DisaggregatedPrediction
from penstock.performance.memory.engine_settings_that_fit import engine_flags
from penstock.performance.prediction.predict_deployment import Range
from penstock.report.drawing.comparison_table import Column, sheet

_FULL = {"prefill": "prefill saturated", "decode": "decode saturated", "users": "not saturated"}


_COLUMNS = (
    Column("replicas", figures=False),
    Column("engine", figures=False),
    Column("output tok/s\n(P10-P90)"),
    Column("tok/s\nper device"),
    Column("TPOT ms\n(P10-P90)"),
    Column("TTFT ms\n(P10-P90)"),
    Column("prefill\nbusy"),
    Column("requests\nper step"),
    Column("pools", figures=False),
    Column("tier", figures=False),
)


def render_disaggregated(
    model: ModelSpec, predictions: Sequence[DisaggregatedPrediction], width: int
) -> RenderableType:
    """Draw the whole answer."""
    table = sheet(_COLUMNS, [_row(prediction) for prediction in predictions], width)
    return Group(Text(model.name, style="bold"), table, Text(), _grounds(predictions))


def _row(prediction: DisaggregatedPrediction) -> list[str | Text]:
    deployed = prediction.deployed
    name = (
        f"{deployed.decode.accelerator.id}, prefill {deployed.prefill_replicas} x {deployed.prefill.parallelism},\n"
        f"  decode {deployed.decode_replicas} x {deployed.decode.parallelism}"
    )
    if not prediction.fits:
        return [name, prediction.measured_engine, Text("does not fit", style="bold red"), *["-"] * 7]
    tpot_ms = prediction.tpot_s.scaled(1e3)
    return [
        name,
        prediction.measured_engine,
        _range_text(prediction.output_tokens_per_s, 0),
        f"{prediction.output_tokens_per_s_per_device:,.0f}",
        _range_text(tpot_ms, 1) if prediction.demand.output_tokens > 1 else "-",
        _range_text(prediction.ttft_s.scaled(1e3), 0),
        f"{prediction.steady.prefill_busy:.0%}",
        f"{prediction.steady.decoding:,.0f}",
        _FULL[prediction.steady.bound_by],
        prediction.tier,
    ]


def _range_text(value: Range, digits: int) -> Text:
    span = f"\n{value.low:,.{digits}f}-{value.high:,.{digits}f}"
    return Text.assemble(f"{value.value:,.{digits}f}", (span, "dim"))


def _grounds(predictions: Sequence[DisaggregatedPrediction]) -> Text:
    text = Text(style="dim")
    for prediction in predictions:
        deployed = prediction.deployed
        where = deployed.decode.accelerator.id
        kinds = (
            ("a prefill", deployed.prefill, prediction.memory[0]),
            ("a decode", deployed.decode, prediction.memory[1]),
        )
        for kind, placed, memory in kinds:
            if memory.obstacle is not None:
                text.append(f"{where}: {kind} replica ({placed.parallelism}): {memory.obstacle.reason}\n")
            elif flags := engine_flags(placed):
                text.append(f"{where}: {kind} replica ({placed.parallelism}) fits with {placed.engine.name} ")
                text.append(f"{' '.join(flags)}\n")
        path = " > ".join(prediction.decode.path) or "no measurements"
        text.append(
            f"{where}: {deployed.devices} devices, estimated from {path} with {prediction.measured_engine}, "
            f"KV cache sent at {deployed.sending_bytes_per_s / 1e9:,.0f} GB/s from each prefill replica"
        )
        drafts = prediction.speculation
        if drafts is not None:
            text.append(f"; {drafts.drafted_tokens} tokens drafted, {drafts.accepted_tokens:.2f} accepted per step")
        text.append("\n")
    text.append(
        "If the prefill pool is saturated, TTFT is mostly time in its queue, which grows with every further user."
    )
    return text
