"""Predicts throughput and latency: `penstock.predict`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from penstock.api.answer import ApiAnswer, Row, device_label, spread_over
from penstock.api.arguments.choices import counted_targets, tokens_choice
from penstock.api.arguments.deployment_argument import RequestedDeployment
from penstock.api.arguments.ignored import refuse_ignored
from penstock.api.arguments.own_corrections import require_used
from penstock.api.arguments.repeated_flags import simulate_command
from penstock.api.options.option_fields import takes
from penstock.api.options.predict_options import ClosedLoopOptions, PredictOptions
from penstock.catalog import load_measurements
from penstock.catalog.accelerator import Accelerator
from penstock.catalog.device_prices import DevicePrice, rent_of
from penstock.catalog.measurement import Measurement
from penstock.economics.rent_rates import rent_usd_per_output_mtok
from penstock.errors import DeploymentError, UsageError
from penstock.model import ModelSpec
from penstock.performance.calibration.own_correction import fingerprint_of
from penstock.performance.disaggregated.disaggregated_prediction import DisaggregatedPrediction
from penstock.performance.prediction.energy_per_token import Energy, energy_of
from penstock.performance.prediction.measured_cell import (
    measured_energy,
    rows_of_cell,
    rows_of_setup,
    with_measured_rate,
)
from penstock.performance.prediction.measured_load import RequestedLoad
from penstock.performance.prediction.nearest_measurements import nearest_measurements
from penstock.performance.prediction.predict_deployment import Prediction, Range
from penstock.performance.shipped.shipped_energy import shipped_power
from penstock.performance.shipped.shipped_runs import shape_of_name
from penstock.performance.similarity.cases import shape_of
from penstock.preflight.executed_speed import emulated_speed
from penstock.preflight.rules._rule_files import load_table
from penstock.report.predict import has_tpot, render_predictions
from penstock.report.predict_disaggregated import render_disaggregated
from penstock.report.predict_document import PredictDisaggregatedDocument, PredictDocument
from penstock.report.predict_summary import (
    UndeterminedTarget,
    next_commands,
    obstacle_of,
    undetermined_lines,
    weights_name,
)

_MORE: Final = "--explain shows the time of a step by component, power, rents and the nearest public measurements."


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
    rents: tuple[DevicePrice | None, ...]
    """Rent of each accelerator by the hour, None if the catalog has no price."""
    follow_up: str
    """The command that asks for the request rate of the same deployments."""
    undetermined: tuple[UndeterminedTarget, ...] = ()
    """Requested accelerators without a prediction."""
    explain: bool = False
    """Whether `render` shows the time of a step, power, the sources of rents, and the nearest measurements."""

    @property
    def good(self) -> bool:
        """Return whether the model fits on every accelerator, and at least an eighth of the requests run at once."""
        return all(prediction.serves for prediction in self.predictions)

    @property
    def costs_usd_per_output_mtok(self) -> list[Range | None]:
        """Return the rent per million output tokens at the predicted throughput, one for each accelerator.

        The range is that of the throughput. All of the rent is charged to output tokens, as `simulate` does.
        """
        return [_cost(prediction, rent) for prediction, rent in zip(self.predictions, self.rents, strict=True)]

    def rows(self) -> list[Row]:
        """Return one row per accelerator."""
        known = zip(self.predictions, self.energies, self.costs_usd_per_output_mtok, strict=True)
        return [_row(prediction, energy, cost, self.output_tokens) for prediction, energy, cost in known]

    def render(self, columns: int) -> RenderableType:
        """Return what `predict` prints."""
        answer = render_predictions(
            self.model,
            self.predictions,
            self.energies,
            self.nearest,
            (self.rents, self.costs_usd_per_output_mtok),
            columns,
            self.output_tokens,
            explain=self.explain,
        )
        more = [] if self.explain else [Text(_MORE, style="dim")]
        return Group(
            answer,
            *undetermined_lines(self.undetermined),
            *more,
            *next_commands({"the request rate that keeps an SLO": self.follow_up}, columns),
        )

    def _summary(self) -> tuple[str, Sequence[str]]:
        return self.model.name, [_piece(prediction) for prediction in self.predictions]


@dataclass(frozen=True, kw_only=True, repr=False)
class PredictDisaggregatedAnswer(ApiAnswer):
    """Predicted throughput and latency of deployments with separate prefill and decode replicas."""

    document_type = PredictDisaggregatedDocument
    model: ModelSpec
    predictions: tuple[DisaggregatedPrediction, ...]

    @property
    def good(self) -> bool:
        """Return whether both prefill and decode replicas fit on every accelerator."""
        return all(prediction.fits for prediction in self.predictions)

    def rows(self) -> list[Row]:
        """Return one row per accelerator."""
        return [_disaggregated_row(prediction) for prediction in self.predictions]

    def render(self, columns: int) -> RenderableType:
        """Return the terminal output of `predict --prefill`."""
        return render_disaggregated(self.model, self.predictions, columns)

    def _summary(self) -> tuple[str, Sequence[str]]:
        return self.model.name, [
            f"{device_label(one.deployed.decode.accelerator.id, one.deployed.devices)} "
            + (f"{one.output_tokens_per_s.value:,.0f} tok/s" if one.fits else "does not fit")
            for one in self.predictions
        ]


@takes(PredictOptions)
def predict(options: PredictOptions) -> PredictAnswer | PredictDisaggregatedAnswer:
    """Predict speed, as `penstock predict` does: `predict("deepseek-r1", "mi355x:8,b200:8", concurrency=64)`.

    `input_tokens` and `output_tokens` are the flags --in and --out, because `in` is a keyword of Python.
    """
    return predict_at(options, [options.concurrency])[0]


def predict_at(
    options: ClosedLoopOptions, concurrency: Sequence[int]
) -> list[PredictAnswer | PredictDisaggregatedAnswer]:
    """Predict a deployment at several numbers of requests in flight. Return one answer per number."""
    refuse_ignored(
        options,
        decode_replicas=options.replicas,
        drafted=options.drafted,
        accepted=options.accepted,
        roofline=options.roofline,
    )
    accepted = None if options.accepted is None else float(options.accepted)
    placing = RequestedDeployment(options, drafted=options.drafted, accepted=accepted)
    tokens = tokens_choice(options.input_tokens), tokens_choice(options.output_tokens)
    if options.prefill and options.explain:
        raise UsageError("--explain would change nothing with --prefill; drop it")
    if not options.prefill:
        return [_predict_aggregated(placing, (*tokens, users), options) for users in concurrency]
    return [_predict_disaggregated(placing, tokens, users, options.replicas) for users in concurrency]


def _predict_disaggregated(
    placing: RequestedDeployment, tokens: tuple[int, int], users: int, replicas: int
) -> PredictDisaggregatedAnswer:
    """Predict deployments with separate prefill and decode replicas."""
    predictions = tuple(
        placing.predict_disaggregated_deployment(
            accelerator, placing.disaggregated_split(accelerator, devices, replicas), tokens, users
        )
        for accelerator, devices in counted_targets(placing.options.on)
    )
    return PredictDisaggregatedAnswer(model=placing.spec, predictions=predictions)


def _predict_aggregated(
    placing: RequestedDeployment, load: tuple[int, int, int], options: ClosedLoopOptions
) -> PredictAnswer:
    """Predict deployments whose replicas both prefill and decode."""
    family = shape_of(placing.spec)
    if options.roofline and isinstance(options.calibration, str):
        raise UsageError(
            "--calibration: the hardware limit is not corrected by own runs; drop --calibration or --roofline"
        )
    found, undetermined = [], []
    for accelerator, devices in counted_targets(placing.options.on):
        try:
            if not options.roofline:
                _refuse_emulated(placing.spec, accelerator)
            predicted = placing.predict(accelerator, devices, load, roofline=options.roofline)
        except DeploymentError as reason:
            undetermined.append((UndeterminedTarget(accelerator=accelerator.id, reason=str(reason)), reason))
            continue
        found.append(_with_evidence(predicted, family, partial(placing.predict_again, predicted)))
    if not found:
        raise undetermined[0][1]
    if not options.roofline:
        require_used(placing.efficiencies, (fingerprint_of(one.deployment, one.measured_engine) for one, _, _ in found))
    return PredictAnswer(
        model=placing.spec,
        input_tokens=load[0],
        output_tokens=load[1],
        predictions=tuple(prediction for prediction, _, _ in found),
        energies=tuple(energy for _, energy, _ in found),
        nearest=tuple(nearest for _, _, nearest in found),
        rents=tuple(rent_of(prediction.deployment.accelerator) for prediction, _, _ in found),
        follow_up=simulate_command(options),
        undetermined=tuple(target for target, _ in undetermined),
        explain=options.explain,
    )


def _refuse_emulated(model: ModelSpec, accelerator: Accelerator) -> None:
    """Raise an error if engines would emulate the weights, because no measurement says how slow that is."""
    if (reason := emulated_speed(model, accelerator, load_table("kernels"))) is not None:
        raise DeploymentError(f"the speed of {model.name} is {reason}; leave {accelerator.id} out, or add --roofline")


def _with_evidence(
    predicted: Prediction, family: str, predict_at: Callable[[RequestedLoad], Prediction]
) -> tuple[Prediction, Energy | None, tuple[Measurement, ...]]:
    """Return a prediction with its energy and the nearest measurements. Measured figures of its cell are the answer."""
    rows = load_measurements(predicted.deployment.accelerator.id)
    own = rows_of_setup(predicted, rows, _family_of, family)
    prediction = with_measured_rate(predicted, own, predict_at)
    energy = measured_energy(energy_of(prediction, shipped_power()), prediction, rows_of_cell(predicted, own))
    return prediction, energy, tuple(nearest_measurements(prediction, rows, _family_of, family=family))


def _family_of(row: Measurement) -> str:
    return shape_of_name(row.model)


def _row(prediction: Prediction, energy: Energy | None, cost: Range | None, output_tokens: int) -> Row:
    placed, serves = prediction.deployment, prediction.serves
    tpot_s = prediction.tpot_s if serves and has_tpot(output_tokens) else None
    return {
        "model": placed.model.name,
        "weights": weights_name(placed.model),
        "kv_cache": placed.chosen_cache_dtype.value,
        "input_tokens": prediction.load.input_tokens,
        "output_tokens": prediction.load.output_tokens,
        "drafted_tokens": 0 if prediction.speculation is None else prediction.speculation.drafted_tokens,
        "accelerator": placed.accelerator.id,
        "devices": placed.parallelism.devices,
        "split": str(placed.parallelism),
        "engine": prediction.measured_engine,
        "fits": prediction.memory.fits,
        "concurrency": prediction.concurrency,
        "running": prediction.running if prediction.memory.fits else None,
        **spread_over("output_tokens_per_s", prediction.output_tokens_per_s if serves else None),
        "output_tokens_per_s_per_device": prediction.output_tokens_per_s_per_device if serves else None,
        **spread_over("tpot_s", tpot_s),
        "tokens_per_s_per_user": None if tpot_s is None else 1 / tpot_s.value,
        **spread_over("ttft_s", prediction.ttft_s if serves else None),
        **spread_over("device_watts", None if energy is None else energy.device_watts),
        **spread_over("joules_per_output_token", None if energy is None else energy.joules_per_output_token),
        **spread_over("usd_per_output_mtok", cost),
        "bound_by": prediction.step.bound_by if serves else None,
        "software_tax_fraction": prediction.software_tax if serves else None,
        "tier": prediction.tier,
        "obstacle": obstacle_of(prediction),
    }


def _cost(prediction: Prediction, rent: DevicePrice | None) -> Range | None:
    """Return the rent per million output tokens. None if the load is not served or the rent is unknown."""
    if rent is None or not prediction.serves:
        return None
    devices, rate = prediction.deployment.parallelism.devices, prediction.output_tokens_per_s
    value, low, high = (
        rent_usd_per_output_mtok(rent.usd_per_device, devices, per_s) for per_s in (rate.value, rate.high, rate.low)
    )
    return Range(value=value, low=low, high=high)


def _piece(prediction: Prediction) -> str:
    name = device_label(prediction.deployment.accelerator.id, prediction.deployment.parallelism.devices)
    if not prediction.serves:
        return f"{name} {'is too small' if prediction.memory.fits else 'does not fit'}"
    return f"{name} {prediction.output_tokens_per_s.value:,.0f} tok/s ({prediction.measured_engine})"


def _disaggregated_row(prediction: DisaggregatedPrediction) -> Row:
    deployed, fits = prediction.deployed, prediction.fits
    return {
        "model": deployed.decode.model.name,
        "weights": weights_name(deployed.decode.model),
        "kv_cache": deployed.decode.chosen_cache_dtype.value,
        "input_tokens": prediction.demand.input_tokens,
        "output_tokens": prediction.demand.output_tokens,
        "drafted_tokens": 0 if prediction.speculation is None else prediction.speculation.drafted_tokens,
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
