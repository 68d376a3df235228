"""Writes the command that asks the next question about the same deployment."""

import shlex
from os import fspath

from penstock.api.arguments.choices import counted_targets
from penstock.api.options.argument_types import AskedModel, Targets
from penstock.api.options.calibration_choice import FoundCalibrations
from penstock.api.options.option_fields import flags_of
from penstock.api.options.predict_options import ClosedLoopOptions
from penstock.api.options.simulate_options import SimulateOptions
from penstock.model import ModelSpec


def simulate_command(options: ClosedLoopOptions) -> str:
    """Return `penstock simulate` with the model, the accelerators and the shared options of a prediction."""
    words = ["penstock", "simulate", _model(options.model), "--on", _targets(options.on)]
    shared = flags_of(SimulateOptions)
    for name, (flag, _) in flags_of(ClosedLoopOptions).items():
        value = getattr(options, name)
        if isinstance(value, FoundCalibrations):
            continue  # the next command finds the project's file as well
        if name in shared and name not in {"model", "on"} and str(value) != str(shared[name][1].default):
            words.append(flag.name or f"--{name.replace('_', '-')}")
            words += [] if value is True else [str(value)]
    return shlex.join([*words, "--rate", "1", "--slo", "ttft=1s,tpot=50ms", "--capacity"])


def _model(model: AskedModel) -> str:
    return model.name if isinstance(model, ModelSpec) else fspath(model)


def _targets(on: Targets) -> str:
    if isinstance(on, str):
        return on
    found = counted_targets(on)
    return ",".join(one.id + ("" if devices is None else f":{devices}") for one, devices in found)
