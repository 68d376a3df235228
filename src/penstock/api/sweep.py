"""Predicts curves of throughput per device over speed per user: `penstock.sweep`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType

from penstock.api.answer import ApiAnswer, Row
from penstock.api.arguments.choices import loads_choice
from penstock.api.arguments.repeated_flags import simulate_command
from penstock.api.options.option_fields import takes
from penstock.api.options.predict_options import SweepOptions
from penstock.api.predict import PredictAnswer, PredictDisaggregatedAnswer, predict, predict_at
from penstock.errors import UsageError
from penstock.model import ModelSpec
from penstock.report.predict_summary import undetermined_lines, weights_name
from penstock.report.sweep import Series, render_sweep, series_of
from penstock.report.sweep_document import SweepDocument


@dataclass(frozen=True, kw_only=True, repr=False)
class SweepAnswer(ApiAnswer):
    """Predictions at several numbers of requests in flight, as curves with intervals."""

    document_type = SweepDocument
    model: ModelSpec
    input_tokens: int
    output_tokens: int
    concurrency: tuple[int, ...]
    answers: tuple[PredictAnswer, ...]
    follow_up: str

    @property
    def weights(self) -> str:
        """Return the formats of the weights."""
        return weights_name(self.model)

    @property
    def good(self) -> bool:
        """Return whether every accelerator serves every load."""
        return all(answer.good for answer in self.answers)

    @property
    def series(self) -> list[Series]:
        """Return one curve per accelerator."""
        predictions = [one for answer in self.answers for one in answer.predictions]
        return series_of(predictions, len(self.answers[0].predictions))

    def rows(self) -> list[Row]:
        """Return one row per accelerator and number of requests in flight."""
        return [row for answer in self.answers for row in answer.rows()]

    def render(self, columns: int) -> RenderableType:
        """Return what `predict` prints for several loads."""
        commands = {"the request rate that keeps an SLO": self.follow_up}
        return Group(
            render_sweep(self.model, self.series, columns, commands),
            *undetermined_lines(self.answers[0].undetermined),
        )

    def _summary(self) -> tuple[str, Sequence[str]]:
        loads = f"{len(self.concurrency)} loads from {self.concurrency[0]} to {self.concurrency[-1]}"
        return self.model.name, [f"{line.name}, {loads}" for line in self.series]


@takes(SweepOptions)
def sweep(options: SweepOptions) -> SweepAnswer:
    """Predict curves, as `penstock predict` with a list: `sweep("llama-3.3-70b", "h200:2", concurrency=[1, 8, 64])`."""
    if options.prefill:
        raise UsageError("a list of loads has no prediction with --prefill; give one --concurrency")
    if options.explain:
        raise UsageError("--explain explains one load; give one --concurrency")
    loads = loads_choice(options.concurrency)
    answers = tuple(answer for answer in predict_at(options, loads) if isinstance(answer, PredictAnswer))
    return SweepAnswer(
        model=answers[0].model,
        input_tokens=answers[0].input_tokens,
        output_tokens=answers[0].output_tokens,
        concurrency=loads,
        answers=answers,
        follow_up=simulate_command(options),
    )


def predict_loads(**given: Any) -> PredictAnswer | PredictDisaggregatedAnswer | SweepAnswer:  # noqa: ANN401 - options
    """Predict one load, or sweep several, as the command `predict` does."""
    loads = loads_choice(given.pop("concurrency", 64))
    return predict(**given, concurrency=loads[0]) if len(loads) == 1 else sweep(**given, concurrency=loads)
