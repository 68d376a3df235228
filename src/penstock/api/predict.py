"""Predicts throughput and latency: `penstock.predict`."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import RenderableType

from penstock.api.answer import ApiAnswer, Row, counted, spread_over
from penstock.api.arguments.choices import AskedModel, Targets, Tokens, at_least, counted_targets, tokens_choice
from penstock.api.arguments.deployment_argument import RequestedDeployment
from penstock.api.arguments.ignored import refuse_ignored
from penstock.catalog import load_measurements
from penstock.catalog.measurement import Measurement
from penstock.model import ModelSpec
from penstock.performance.disaggregated.disaggregated_prediction import DisaggregatedPrediction
from penstock.performance.prediction.energy_per_token import Energy, energy_of
from penstock.performance.prediction.nearest_measurements import nearest_measurements
from penstock.performance.prediction.predict_deployment import Prediction
from penstock.performance.shipped.shipped_energy import shipped_power
from penstock.performance.shipped.shipped_runs import shape_of_name
from penstock.performance.similarity.cases import shape_of
from penstock.report.predict import has_tpot, render_predictions
from penstock.report.predict_disaggregated import render_disaggregated
from penstock.report.predict_document import PredictDisaggregatedDocument, PredictDocument


@dataclass(frozen=True, kw_only=True, repr=False)
class PredictAnswer(ApiAnswer):
    """Predicted throughput, latency and energy of each deployment, with nearby measurements."""

    document_type = PredictDocument
    model: ModelSpec
    input_tokens: int
    output_tokens: int
    predictions: tuple[Prediction, ...]
    energies: tuple[Energy | None, ...]
    nearest: tuple[tuple[Measurement, ...], ...]

    @property
    def good(self) -> bool:
        """Whether the model fits on every accelerator."""
        return all(prediction.memory.fits for prediction in self.predictions)

    def rows(self) -> list[Row]:
        """Return one row per accelerator."""
        pairs = zip(self.predictions, self.energies, strict=True)
        return [_row(prediction, energy, self.output_tokens) for prediction, energy in pairs]

    def drawn(self, columns: int) -> RenderableType:
        """Draw what `predict` prints."""
        return render_predictions(
            self.model, self.predictions, self.energies, self.nearest, columns, self.output_tokens
        )

    def _said(self) -> tuple[str, Sequence[str]]:
        return self.model.name, [_piece(prediction) for prediction in self.predictions]


@dataclass(frozen=True, kw_only=True, repr=False)
class PredictDisaggregatedAnswer(ApiAnswer):
    """Predicted throughput and latency of prefill and decode replicas."""

    document_type = PredictDisaggregatedDocument
    model: ModelSpec
    predictions: tuple[DisaggregatedPrediction, ...]

    @property
    def good(self) -> bool:
        """Whether prefill and decode replicas fit on every accelerator."""
        return all(prediction.fits for prediction in self.predictions)

    def rows(self) -> list[Row]:
        """Return one row per accelerator."""
        return [_row_apart(prediction) for prediction in self.predictions]

    def drawn(self, columns: int) -> RenderableType:
        """Draw what `predict --prefill` prints."""
        return render_disaggregated(self.model, self.predictions, columns)

    def _said(self) -> tuple[str, Sequence[str]]:
        return self.model.name, [
            f"{counted(one.deployed.decode.accelerator.id, one.deployed.devices)} "
            + (f"{one.output_tokens_per_s.value:,.0f} tok/s" if one.fits else "does not fit")
            for one in self.predictions
        ]


def predict(
    model: AskedModel,
    on: Targets,
    *,
    input_tokens: Tokens = 1024,
    output_tokens: Tokens = 1024,
    concurrency: int = 64,
    precision: str | None = None,
    kv: str = "auto",
    engine: str = "best",
    dp: int = 1,
    ep: bool = False,
    mtp: bool = False,
    drafted: int = 0,
    accepted: float | None = None,
    prefill: int = 0,
    prefill_split: str | None = None,
    replicas: int = 1,
    kv_gbps: float | None = None,
    light: bool = False,
) -> PredictAnswer | PredictDisaggregatedAnswer:
    """How fast will it be? As `penstock predict`: `predict("deepseek-r1", "mi355x:8,b200:8", concurrency=64)`.

    `input_tokens` and `output_tokens` are --in and --out, which Python keeps for itself or would read oddly.
    """
    at_least(1, concurrency=concurrency, dp=dp, replicas=replicas, accepted=accepted)
    at_least(0, drafted=drafted, prefill=prefill)
    refuse_ignored(
        prefill=prefill,
        prefill_split=prefill_split,
        kv_gbps=kv_gbps,
        decode_replicas=replicas,
        mtp=mtp,
        drafted=drafted,
        accepted=accepted,
        light=light,
    )
    placing = RequestedDeployment(
        model,
        precision=precision,
        kv=kv,
        engine=engine,
        dp=dp,
        ep=ep,
        mtp=mtp,
        drafted=drafted,
        accepted=None if accepted is None else float(accepted),
        prefill_split=prefill_split,
    )
    tokens = tokens_choice(input_tokens), tokens_choice(output_tokens)
    if not prefill:
        return _together(placing, on, (*tokens, concurrency), light=light)
    predictions = tuple(
        placing.predict_disaggregated_deployment(
            part, placing.disaggregated_split(part, devices, (prefill, replicas), kv_gbps), tokens, concurrency
        )
        for part, devices in counted_targets(on)
    )
    return PredictDisaggregatedAnswer(model=placing.spec, predictions=predictions)


def _together(placing: RequestedDeployment, on: Targets, load: tuple[int, int, int], *, light: bool) -> PredictAnswer:
    """Predict prefill and decode on the same replicas."""
    predictions = tuple(placing.predict(part, devices, load, light=light) for part, devices in counted_targets(on))
    nearest = (
        nearest_measurements(
            prediction,
            load_measurements(prediction.deployment.accelerator.id),
            lambda row: shape_of_name(row.model),
            family=shape_of(placing.spec),
            input_tokens=load[0],
            output_tokens=load[1],
        )
        for prediction in predictions
    )
    return PredictAnswer(
        model=placing.spec,
        input_tokens=load[0],
        output_tokens=load[1],
        predictions=predictions,
        energies=tuple(energy_of(prediction, shipped_power()) for prediction in predictions),
        nearest=tuple(tuple(rows) for rows in nearest),
    )


def _row(prediction: Prediction, energy: Energy | None, output_tokens: int) -> Row:
    placed, fits = prediction.deployment, prediction.memory.fits
    tpot_s = prediction.tpot_s if fits and has_tpot(output_tokens) else None
    return {
        "accelerator": placed.accelerator.id,
        "devices": placed.parallelism.devices,
        "split": str(placed.parallelism),
        "engine": prediction.measured_engine,
        "fits": fits,
        "concurrency": prediction.concurrency,
        "running": prediction.running if fits else None,
        **spread_over("output_tokens_per_s", prediction.output_tokens_per_s if fits else None),
        "output_tokens_per_s_per_device": prediction.output_tokens_per_s_per_device if fits else None,
        **spread_over("tpot_s", tpot_s),
        **spread_over("ttft_s", prediction.ttft_s if fits else None),
        **spread_over("device_watts", None if energy is None else energy.device_watts),
        **spread_over("joules_per_output_token", None if energy is None else energy.joules_per_output_token),
        "bound_by": prediction.step.bound_by if fits else None,
        "software_tax_fraction": prediction.software_tax if fits else None,
        "tier": prediction.tier,
        "obstacle": None if prediction.memory.obstacle is None else prediction.memory.obstacle.reason,
    }


def _piece(prediction: Prediction) -> str:
    name = counted(prediction.deployment.accelerator.id, prediction.deployment.parallelism.devices)
    if not prediction.memory.fits:
        return f"{name} does not fit"
    return f"{name} {prediction.output_tokens_per_s.value:,.0f} tok/s ({prediction.measured_engine})"


def _row_apart(prediction: DisaggregatedPrediction) -> Row:
    deployed, fits = prediction.deployed, prediction.fits
    return {
        "accelerator": deployed.decode.accelerator.id,
        "devices": deployed.devices,
        "prefill_replicas": deployed.prefill_replicas,
        "prefill_split": str(deployed.prefill.parallelism),
        "decode_replicas": deployed.decode_replicas,
        "decode_split": str(deployed.decode.parallelism),
        "engine": prediction.measured_engine,
        "fits": fits,
        "concurrency": prediction.demand.users,
        **spread_over("output_tokens_per_s", prediction.output_tokens_per_s if fits else None),
        "output_tokens_per_s_per_device": prediction.output_tokens_per_s_per_device if fits else None,
        **spread_over("tpot_s", prediction.tpot_s if fits and has_tpot(prediction.demand.output_tokens) else None),
        **spread_over("ttft_s", prediction.ttft_s if fits else None),
        "prefill_busy_fraction": prediction.steady.prefill_busy if fits else None,
        "bound_by": prediction.steady.bound_by if fits else None,
        "tier": prediction.tier,
    }
