"""Converts the shipped energy measurements to inputs of the power model, and predicts each held-out measurement."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import exp

from penstock.catalog import load_accelerator, load_measurements, load_power
from penstock.catalog.accelerator import Accelerator
from penstock.economics.node_power import DrawUnderLoad
from penstock.performance.power.power_document import from_document
from penstock.performance.power.power_fit import DrawnRow, power_rows, power_spreads, without_each
from penstock.performance.power.power_model import PowerModel
from penstock.performance.prediction.energy_per_token import Energy, energy_at
from penstock.performance.prediction.predict_deployment import Range
from penstock.performance.shipped.shipped_runs import model_of, predicted_without, shipped_efficiencies
from penstock.performance.step.step_work import COMPONENTS


@cache
def shipped_power() -> PowerModel:
    """Return the shipped power model that commands use."""
    return from_document(load_power())


def power_under_load(accelerator: Accelerator) -> DrawUnderLoad:
    """Return the measured power of an accelerator under load, as a share of its board power.

    If this accelerator was not measured, the result is the power of the measured accelerators of its vendor. If the
    vendor has no measured accelerator, the result is the power of all measured accelerators.
    """
    power = shipped_power()
    path = power.nearest(accelerator)
    seen = power.under_load[path]
    where = ("all measured accelerators", f"measured {accelerator.vendor} accelerators", accelerator.id)[len(path)]
    return DrawUnderLoad(
        median_fraction=seen.median,
        low_fraction=seen.low,
        high_fraction=seen.high,
        grounds=f"P10-P90 {seen.low:.0%} to {seen.high:.0%} over {seen.rows} InferenceX cells of {where}",
    )


@cache
def shipped_draws() -> tuple[DrawnRow, ...]:
    """Return every shipped energy measurement of a single engine without drafts."""
    return tuple(power_rows(load_measurements(), model_of, load_accelerator))


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedDraw:
    """Energy measurement with two held-out predictions of it: at the predicted speed, and at the measured speed."""

    row: DrawnRow
    energy: Energy
    at_its_speed: Energy

    @property
    def joules_error(self) -> float:
        """Return the relative error of the predicted joules per output token."""
        return self.energy.joules_per_output_token.value / self._measured_joules - 1

    @property
    def joules_error_at_its_speed(self) -> float:
        """Return the relative error of the joules per output token that are predicted at the measured speed."""
        return self.at_its_speed.joules_per_output_token.value / self._measured_joules - 1

    @property
    def watts_error(self) -> float:
        """Return the relative error of the predicted watts of a device."""
        return self.energy.device_watts.value / self._measured_watts - 1

    @property
    def covered(self) -> bool:
        """Return whether the measured joules per output token lie within the predicted P10-P90."""
        span = self.energy.joules_per_output_token
        return span.low <= self._measured_joules <= span.high

    @property
    def _measured_joules(self) -> float:
        return self.row.measurement.joules_per_output_token or 0.0

    @property
    def _measured_watts(self) -> float:
        return self.row.share * (load_accelerator(self.row.path[1]).tdp_watts or 0.0)


@cache
def held_out_draws() -> tuple[PredictedDraw, ...]:
    """Predict every energy measurement, with its curve held out from both the speed model and the power model.

    A curve consists of all measurements with one model, format, accelerator, engine and split.
    """
    rows = shipped_draws()
    spreads = power_spreads(rows)
    return tuple(entry for power, held in without_each(rows, "split", spreads) for entry in _predict_rows(power, held))


def _predict_rows(power: PowerModel, held: list[DrawnRow]) -> Iterator[PredictedDraw]:
    for row in held:
        unseen = predicted_without("setup", row.measurement)
        if unseen is None:
            continue
        seconds, uncertainty = unseen
        low, high = shipped_efficiencies().interval("configuration", row.measurement.accelerator, uncertainty)
        span = Range(value=seconds, low=seconds * exp(low), high=seconds * exp(high))
        known = Range(value=row.seconds, low=row.seconds, high=row.seconds)
        predicted, at_its_speed = (_energy(power, row, tpot) for tpot in (span, known))
        if predicted is not None and at_its_speed is not None:
            yield PredictedDraw(row=row, energy=predicted, at_its_speed=at_its_speed)


def _energy(power: PowerModel, row: DrawnRow, tpot: Range) -> Energy | None:
    measured = row.measurement
    return energy_at(
        power,
        load_accelerator(measured.accelerator),
        row.kernels,
        roofline_parts_s=dict(zip(COMPONENTS, row.roofline.tolist(), strict=True)),
        token_s=tpot,
        device_seconds=measured.devices / (measured.concurrency or 1.0),
        speed_tier="calibrated",
    )
