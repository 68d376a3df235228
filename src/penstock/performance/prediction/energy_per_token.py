"""What does it draw, and what does a token take? Watts of a device and joules per output token of a prediction."""

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
    """Power of one device and energy of all of them, without host, network and cooling."""

    device_watts: Range
    joules_per_output_token: Range
    tier: Tier
    unseen: Unseen
    """What of the draw was never measured."""
    source: str


def energy_of(prediction: Prediction, power: PowerModel) -> Energy | None:
    """Work out watts and joules; None where board power is undetermined, or at the speed of light."""
    placed, engine = prediction.deployment, prediction.measured_engine
    if prediction.tier == "speed-of-light":
        return None
    return energy_at(
        power,
        placed.accelerator,
        kernels_of(placed.accelerator.id, engine, shape_of(placed.model), weights_label(placed.model)),
        light_parts_s=prediction.light_parts_s,
        token_s=_token_s(prediction),
        device_seconds=placed.parallelism.devices / prediction.running,
        speed_tier=prediction.tier,
    )


def energy_at(
    power: PowerModel,
    part: Accelerator,
    kernels: str,
    *,
    light_parts_s: Mapping[str, float],
    token_s: Range,
    device_seconds: float,
    speed_tier: Tier,
) -> Energy | None:
    """Work out the same at a speed: in `token_s` every request gets a token, and `device_seconds` pay for each second.

    A slower step draws less, so both ends of the predicted time are asked for their own watts; the error of the draw
    itself comes on top, independent of the error of the speed.
    """
    if part.tdp_watts is None:
        return None
    draw, factor, unseen = power.of(part, kernels)
    times = np.array(token_s.ends)
    watts = part.tdp_watts * draw.shares(Utilisation.of_parts(light_parts_s, times), factor)
    value, fast, slow = (float(entry) for entry in watts)
    joules, least, most = (float(entry) * device_seconds for entry in watts * times)
    device = _range(value, (slow, fast), power.spreads[unseen])
    return Energy(
        device_watts=Range(
            value=value, low=max(part.tdp_watts * draw.idle, device.low), high=min(part.tdp_watts, device.high)
        ),
        joules_per_output_token=_range(joules, (least, most), power.spreads[unseen]),
        tier="calibrated" if unseen == "split" and speed_tier != "transferred" else "transferred",
        unseen=unseen,
        source=f"{power.rows:,} cells with measured joules, SemiAnalysis InferenceX",
    )


def _token_s(prediction: Prediction) -> Range:
    """Seconds in which each running request gets a token, its wait for the first one included."""
    rate, low, high = prediction.output_tokens_per_s.ends
    return Range(value=prediction.running / rate, low=prediction.running / high, high=prediction.running / low)


def _range(value: float, ends: tuple[float, float], spread: Logs) -> Range:
    """Put two independent doubts together: the ends that the speed gives, and the spread of the draw."""
    down, up = log(value / ends[0]), log(ends[1] / value)
    return Range(value=value, low=value * exp(-hypot(down, spread[0])), high=value * exp(hypot(up, spread[1])))
