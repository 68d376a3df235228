"""Renders a correction by own runs: the error before and after, what moved, and the interval."""

from collections.abc import Sequence
from math import exp
from typing import Annotated, Final, Literal

from rich.console import Group, RenderableType
from rich.text import Text
from typing_extensions import TypedDict

from penstock.own_runs.calibration_file import CalibratedFactor, CalibratedTimes
from penstock.own_runs.fit_correction import ComparedRun
from penstock.own_runs.next_run import ProposedRun
from penstock.report.drawing.comparison_table import Column, Figure, sheet
from penstock.report.drawing.json_document import at
from penstock.units import count_text

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


class NextRunDocument(TypedDict):
    """Proposed run. The intervals are of measured over corrected time per token, as logarithms."""

    users: Annotated[int, at("run.load.users")]
    input_tokens: Annotated[int, at("run.load.input_tokens")]
    output_tokens: Annotated[int, at("run.load.output_tokens")]
    log_p90_before: Annotated[float, at(lambda proposed: proposed.run.before[1])]
    log_p90_after: Annotated[float, at(lambda proposed: proposed.run.after[1])]
    matters: str
    command: str


class CalibrateDocument(TypedDict):
    """Correction of one setup's predictions by own runs."""

    schema: Literal["penstock.calibrate/1"]
    calibration: CalibratedTimes
    runs: Annotated[list[ComparedRunDocument], at("fitted.runs")]
    refused: list[str]
    doubts: list[str]
    steps: CalibratedFactor
    next_run: NextRunDocument | None


def render_calibration(
    calibration: CalibratedTimes,
    runs: Sequence[ComparedRun],
    steps: CalibratedFactor,
    next_run: ProposedRun | None,
    warnings: Sequence[str],
    columns: int,
) -> RenderableType:
    """Draw one row per run, then the factors and the next run."""
    setup, prompts = calibration.setup, calibration.prompts
    title = (
        f"{setup.model}, {setup.weights} weights, {setup.kv} cache, {setup.accelerator} {setup.split}, {setup.engine}"
    )
    pieces: list[RenderableType] = [Text(title, style="bold"), sheet(_COLUMNS, [_row(one) for one in runs], columns)]
    pieces += [Text(reason, style="red") for reason in warnings]
    pieces.append(
        Text(
            f"Steps take {steps.factor:.2f}x the predicted time at the measured loads; a further run there lies within "
            f"{steps.p10 - 1:+.0%} to {steps.p90 - 1:+.0%} in 80% of cases. Far from them the interval is wider."
        )
    )
    pieces.append(
        Text(
            f"Prompt tokens take another {prompts.factor:.2f}x; TTFT of a further run lies within "
            f"{prompts.p10 - 1:+.0%} to {prompts.p90 - 1:+.0%}."
        )
    )
    pieces.append(Text(_error_sentence(runs)))
    pieces.append(
        Text(
            "These are simulations of the recorded starts and lengths. `predict` answers for a steady load with varied "
            "lengths, so its times differ from these runs."
        )
    )
    pieces.append(Text(_next_sentence(next_run), style="bold"))
    return Group(*pieces)


def _next_sentence(proposed: ProposedRun | None) -> str:
    if proposed is None:
        return "Next run: none at these lengths would narrow the interval by 5%."
    load = proposed.run.load
    ends = proposed.run.before, proposed.run.after
    before, after = (f"{exp(low) - 1:+.0%}/{exp(high) - 1:+.0%}" for low, high in ends)
    return (
        f"Next run: {count_text(load.users, 'user')}, {load.input_tokens:,}/{load.output_tokens:,} tokens. It narrows "
        f"P10-P90 of TPOT at {proposed.matters} from {before} to {after}:\n{proposed.command}"
    )


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
