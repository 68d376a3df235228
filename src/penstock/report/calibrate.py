"""Renders a correction by own runs: the error before and after, what moved, and the interval."""

from collections.abc import Sequence
from typing import Annotated, Final, Literal

from rich.console import Group, RenderableType
from rich.text import Text
from typing_extensions import TypedDict

from penstock.own_runs.calibration_file import CalibratedTimes
from penstock.own_runs.fit_correction import ComparedRun
from penstock.report.drawing.comparison_table import Column, Figure, sheet
from penstock.report.drawing.json_document import at

_COLUMNS: Final = (
    Column("run", figures=False),
    *(Column(head) for head in ("TPOT,\nmeasured", "predicted\nbefore", "predicted\nafter")),
    *(Column(head) for head in ("TTFT,\nmeasured", "predicted\nbefore", "predicted\nafter")),
)


class ComparedRunDocument(TypedDict):
    """One run: measured times, and the times of the same run as simulated before and after the correction."""

    file: Annotated[str, at("run.where")]
    tool: Annotated[str, at("run.tool")]
    measured_tpot_s: Annotated[float, at("run.tpot.mean_s")]
    tpot_before_s: Annotated[float, at("before.tpot_s")]
    tpot_after_s: Annotated[float, at("after.tpot_s")]
    measured_ttft_s: Annotated[float, at("run.ttft.mean_s")]
    ttft_before_s: Annotated[float, at("before.ttft_s")]
    ttft_after_s: Annotated[float, at("after.ttft_s")]


class CalibrateDocument(TypedDict):
    """Correction of one setup's predictions by own runs."""

    schema: Literal["penstock.calibrate/1"]
    calibration: CalibratedTimes
    runs: Annotated[list[ComparedRunDocument], at("fitted.runs")]
    refused: list[str]
    doubts: list[str]


def render_calibration(
    calibration: CalibratedTimes, runs: Sequence[ComparedRun], warnings: Sequence[str], columns: int
) -> RenderableType:
    """Draw one row per run, then the factors and the next command."""
    setup = calibration.setup
    title = (
        f"{setup.model}, {setup.weights} weights, {setup.kv} cache, {setup.accelerator} {setup.split}, {setup.engine}"
    )
    pieces: list[RenderableType] = [Text(title, style="bold"), sheet(_COLUMNS, [_row(one) for one in runs], columns)]
    pieces += [Text(reason, style="red") for reason in warnings]
    steps, first = calibration.steps, calibration.first_token
    pieces.append(
        Text(
            f"Steps take {steps.factor:.2f}x the predicted time; a further run, also at other loads, lies within "
            f"{steps.p10 - 1:+.0%} to {steps.p90 - 1:+.0%} in 80% of cases."
        )
    )
    pieces.append(
        Text(
            f"First tokens take another {first.factor:.2f}x; a further run lies within {first.p10 - 1:+.0%} to "
            f"{first.p90 - 1:+.0%}."
        )
    )
    pieces.append(Text(_error_sentence(runs)))
    pieces.append(
        Text(
            "These are simulations of the recorded starts and lengths. `predict` answers for a steady load with varied "
            "lengths, so its times differ from these runs."
        )
    )
    return Group(*pieces)


def _error_sentence(runs: Sequence[ComparedRun]) -> str:
    tpot = [[abs(seen.tpot_s / one.run.tpot.mean_s - 1) for seen in (one.before, one.after)] for one in runs]
    ttft = [[abs(seen.ttft_s / one.run.ttft.mean_s - 1) for seen in (one.before, one.after)] for one in runs]
    (before, after), (first_before, first_after) = (map(max, zip(*errors, strict=True)) for errors in (tpot, ttft))
    return (
        f"Largest errors over these runs: TPOT {before:.1%} before, {after:.1%} after; "
        f"TTFT {first_before:.1%} before, {first_after:.1%} after."
    )


def _row(one: ComparedRun) -> tuple[Figure, ...]:
    times_s = (one.run.tpot.mean_s, one.before.tpot_s, one.after.tpot_s)
    first_s = (one.run.ttft.mean_s, one.before.ttft_s, one.after.ttft_s)
    name = "/".join(one.run.where.split("/")[-2:])
    return name, *(f"{value * 1e3:.1f} ms" for value in times_s), *(f"{value * 1e3:.0f} ms" for value in first_s)
