"""Computes the watts of a device and the joules per output token of a prediction."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, hypot, log

import numpy as np

from penstock.catalog.accelerator import Accelerator
from penstock.performance.power.power_model import Logs, PowerModel, Unseen, Utilisation, kernels_of
from penstock.performance.prediction.predict_deployment import Prediction, Range
from penstock.performance.prediction.serving_stack import Tier
from penstock.performance.similarity.cases import shape_of, weights_label


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """Power of one device, and energy of all devices per output token. Host, network and cooling are not included."""

    device_watts: Range
    joules_per_output_token: Range
    tier: Tier
    unseen: Unseen
    """The part of the setup that no power measurement covers."""
    source: str


def energy_of(prediction: Prediction, power: PowerModel) -> Energy | None:
    """Compute watts and joules per output token.

    The result is None if the board power is unknown or the prediction is a roofline.
    """
    placed, engine = prediction.deployment, prediction.measured_engine
    if prediction.tier == "roofline":
        return None
    return energy_at(
        power,
        placed.accelerator,
        kernels_of(placed.accelerator.id, engine, shape_of(placed.model), weights_label(placed.model)),
        roofline_parts_s=prediction.roofline_parts_s,
        token_s=_token_s(prediction),
        device_seconds=placed.parallelism.devices / prediction.running,
        speed_tier=prediction.tier,
    )


def energy_at(
    power: PowerModel,
    accelerator: Accelerator,
    kernels: str,
    *,
    roofline_parts_s: Mapping[str, float],
    token_s: Range,
    device_seconds: float,
    speed_tier: Tier,
) -> Energy | None:
    """Compute watts and joules per output token at a given speed.

    Every running request gets one token per `token_s`. `device_seconds` is the number of devices per running request.
    So a token costs `device_seconds` times `token_s` device-seconds. A slower step draws less power, so the watts are
    computed separately for P10 and P90 of the predicted time. The error of the power model is treated as independent of
    the error of the speed.
    """
    if accelerator.tdp_watts is None:
        return None
    draw, factor, unseen = power.of(accelerator, kernels)
    times = np.array(token_s.ends)
    watts = accelerator.tdp_watts * draw.shares(Utilisation.of_components(roofline_parts_s, times), factor)
    value, fast, slow = (float(entry) for entry in watts)
    joules, lowest, highest = (float(entry) * device_seconds for entry in watts * times)
    device = _range(value, (slow, fast), power.spreads[unseen])
    return Energy(
        device_watts=Range(
            value=value,
            low=max(accelerator.tdp_watts * draw.idle, device.low),
            high=min(accelerator.tdp_watts, device.high),
        ),
        joules_per_output_token=_range(joules, (lowest, highest), power.spreads[unseen]),
        tier="calibrated" if unseen == "split" and speed_tier != "transferred" else "transferred",
        unseen=unseen,
        source=f"{power.rows:,} cells with measured joules, SemiAnalysis InferenceX",
    )


def _token_s(prediction: Prediction) -> Range:
    """Return the seconds per output token of a running request, including the request's wait for its first token."""
    rate, low, high = prediction.output_tokens_per_s.ends
    return Range(value=prediction.running / rate, low=prediction.running / high, high=prediction.running / low)


def _range(value: float, ends: tuple[float, float], spread: Logs) -> Range:
    """Combine two independent uncertainties: `ends` from the error of the speed, and `spread` from the power model."""
    down, up = log(value / ends[0]), log(ends[1] / value)
    return Range(value=value, low=value * exp(-hypot(down, spread[0])), high=value * exp(hypot(up, spread[1])))
