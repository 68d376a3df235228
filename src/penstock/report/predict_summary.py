"""Writes the setup, the conclusion, the uncertainty and the next commands of a prediction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor, log10
from typing import TYPE_CHECKING, Final

from rich.text import Text

from penstock.model import ModelSpec
from penstock.performance.prediction.enough_room import changes_with_room
from penstock.performance.prediction.predict_deployment import Prediction, Range
from penstock.report.drawing.shell_lines import shell_lines

if TYPE_CHECKING:
    from datetime import date

_MIN_SHARE: Final = 0.1
"""Formats with a smaller share of the weight bytes are not named."""
_MAX_AGE_GAP_DAYS: Final = 90
_OTHER_SOFTWARE_DAYS: Final = 180
"""Age of software, relative to that of another figure, from which on the two do not rank accelerators. On one
MLPerf benchmark a year of software sped up H100 by 29% and MI300X by 15%; R1 on B200 gained 89% in one round."""
_UNMEASURED: Final[Mapping[str, str]] = {
    "calibrated": "this model was measured there, but not this setup and load",
    "transferred": "only other models, engines or accelerators were measured",
    "roofline": "a bound from the data sheet, not an estimate",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class UndeterminedTarget:
    """A requested accelerator without a prediction, and the reason."""

    accelerator: str
    reason: str


def undetermined_lines(targets: Sequence[UndeterminedTarget]) -> list[Text]:
    """Write why accelerators have no prediction, one line for each."""
    return [Text(f"{target.accelerator}: undetermined: {target.reason}", style="yellow") for target in targets]


def deployment_name(prediction: Prediction) -> str:
    """Return the accelerator with its device count: `h200_sxm x2`."""
    devices = prediction.deployment.parallelism.devices
    return prediction.deployment.accelerator.id + (f" x{devices}" if devices > 1 else "")


def weights_name(model: ModelSpec) -> str:
    """Return the formats of the weights: `fp8`, or `mxfp4 + bf16`."""
    least = _MIN_SHARE * sum(model.formats.values())
    return " + ".join(name for name, size in model.formats.items() if size >= least)


def cache_name(predictions: Sequence[Prediction]) -> str:
    """Return the data types of the KV caches: `bf16`."""
    return "/".join(sorted({one.deployment.chosen_cache_dtype.value for one in predictions}))


def setup_line(model: ModelSpec, predictions: Sequence[Prediction]) -> Text:
    """Write what the prediction assumes: formats, lengths and the numbers of requests in flight."""
    load = predictions[0].load
    users = ", ".join(dict.fromkeys(f"{one.concurrency:,.0f}" for one in predictions))
    line = Text(model.name, style="bold")
    line.append(
        f", {weights_name(model)} weights, {cache_name(predictions)} KV cache; "
        f"{load.input_tokens:,.0f} in, {load.output_tokens:,.0f} out; {users} in flight",
        style="default not bold",
    )
    return line


def significant(value: float) -> str:
    """Format a number with three significant digits and without an exponent."""
    return f"{value:,.{max(0, 2 - floor(log10(value)))}f}"


def conclusion(predictions: Sequence[Prediction], costs: Sequence[Range | None]) -> Text:
    """Write which deployment delivers the most per device, which is cheapest, and what is uncertain.

    `costs` are dollars of rent per million output tokens, one for each prediction.
    """
    fitting = sorted((one for one in predictions if one.serves), key=lambda one: -one.output_tokens_per_s_per_device)
    if not fitting:
        return Text(f"Result: {'. '.join(what_would_serve(one) for one in predictions)}.")
    best, *others = fitting
    told = f"Result: {deployment_name(best)} delivers {best.output_tokens_per_s_per_device:,.0f} tok/s per device"
    if others:
        second = others[0]
        less = 1 - second.output_tokens_per_s_per_device / best.output_tokens_per_s_per_device
        apart = software_apart(fitting)
        first = "" if apart else ", the most of those compared"
        told += f"{first}; {deployment_name(second)} delivers {less:.0%} less{apart}"
    return Text.assemble(f"{told}.\n", _cheapest(predictions, costs), (_uncertainty(fitting), "dim"))


def software_apart(predictions: Sequence[Prediction]) -> str:
    """Write which software was measured where, if the dates are so far apart that speeds do not rank accelerators."""
    dates = _software_dates(predictions)
    if not dates or (max(dates) - min(dates)).days <= _OTHER_SOFTWARE_DAYS:
        return ""
    old, new = (f"of {day:%Y-%m} on {dates[day]}" for day in (min(dates), max(dates)))
    return f", with software {old} and {new}: no ranking of the accelerators"


def _software_dates(predictions: Sequence[Prediction]) -> "dict[date, str]":
    """Return the first deployment of each date of software."""
    dates: dict[date, str] = {}
    for one in predictions:
        if one.software is not None:
            dates.setdefault(one.software.date, deployment_name(one))
    return dates


def obstacle_of(prediction: Prediction) -> str | None:
    """Write why a deployment does not serve the load; None if it does."""
    users, obstacle = f"{prediction.concurrency:,.0f}", prediction.memory.obstacle
    if obstacle is not None:
        return obstacle.reason
    if prediction.serves:
        return None
    return f"too small for {users} in flight: {prediction.running:,.0f} {'runs' if prediction.running < 2 else 'run'}"


def what_would_serve(prediction: Prediction) -> str:
    """Write that a deployment does not serve the load, and what would: more devices, or fp8 weights."""
    memory, name = prediction.memory, deployment_name(prediction)
    small = f"{name} is too small for {prediction.concurrency:,.0f} in flight: "
    if memory.obstacle_is("weights"):
        why = f"{small}the weights do not fit"
    elif memory.obstacle_is("context"):
        why = f"{small}no request of {memory.context_tokens:,} tokens fits"
    else:
        why = f"{name} {'is' if memory.fits else 'does not run this:'} {obstacle_of(prediction)}"
    changes = changes_with_room(prediction)
    return f"{why}; use {' or '.join(changes)}" if changes else why


def _cheapest(predictions: Sequence[Prediction], costs: Sequence[Range | None]) -> str:
    """Write which deployment has the lowest rent per token; empty if fewer than two rents are known."""
    known = sorted(
        (cost.value, deployment_name(one)) for one, cost in zip(predictions, costs, strict=True) if cost is not None
    )
    if len(known) < 2:
        return ""
    (least, name), (second, other) = known[:2]
    less = f"{1 - least / second:.0%} less than {other}"
    return f"Cheapest at catalog rents: {name}, ${significant(least)} per million output tokens, {less}.\n"


def _uncertainty(fitting: Sequence[Prediction]) -> str:
    reasons = []
    if len(fitting) > 1 and _per_device_p10(fitting[0]) < _per_device_p90(fitting[1]):
        reasons.append(f"the P10-P90 of {deployment_name(fitting[0])} and {deployment_name(fitting[1])} overlap")
    return uncertainty_line([*reasons, *reasons_to_doubt(fitting)])


def uncertainty_line(reasons: Sequence[str]) -> str:
    """Write the reasons why a prediction may be wrong."""
    known = "within P10-P90 for this software; simulate and plan widen it"
    return f"Uncertain: {'; '.join(reasons) or known}."


def reasons_to_doubt(fitting: Sequence[Prediction]) -> list[str]:
    """Name deployments that were not measured, engines that differ, and software dates that are far apart."""
    reasons = []
    for tier, meaning in _UNMEASURED.items():
        names = [deployment_name(one) for one in fitting if one.tier == tier]
        if names:
            reasons.append(f"{', '.join(names)}: {meaning} ({tier})")
    engines = {one.measured_engine for one in fitting}
    if len(engines) > 1:
        reasons.append(f"engines differ ({', '.join(sorted(engines))}); --engine vllm compares one")
    dates = _software_dates(fitting)
    if dates and (max(dates) - min(dates)).days > _MAX_AGE_GAP_DAYS:
        reasons.append("software is " + " and ".join(f"of {day} on {dates[day]}" for day in (min(dates), max(dates))))
    return reasons


def _per_device_p10(prediction: Prediction) -> float:
    return prediction.output_tokens_per_s.low / prediction.deployment.parallelism.devices


def _per_device_p90(prediction: Prediction) -> float:
    return prediction.output_tokens_per_s.high / prediction.deployment.parallelism.devices


def next_commands(commands: Mapping[str, str], width: int) -> list[Text]:
    """Write the commands that come next, each with its purpose. Long commands continue after a backslash."""
    lines = []
    for purpose, command in commands.items():
        lines.append(Text(f"Next: {purpose}:", style="dim"))
        typed = "\n  ".join(shell_lines(command, width - 2))
        lines.append(Text(f"  {typed}", style="green", no_wrap=True, overflow="ignore"))
    return lines
