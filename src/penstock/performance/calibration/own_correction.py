"""Describes how the user's own runs correct the predicted times of one setup."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from penstock.fleet.deployment import Deployment
from penstock.performance.calibration.error_summary import Logs
from penstock.performance.similarity.cases import LogLoad, shape_of, weights_label
from penstock.performance.similarity.load_errors import LoadErrors

_USUAL_USERS: Final = (2.0, 4.0, 6.0)
"""Base-2 logarithms of the numbers of users over which the interval of a setup is taken, as for public measurements
(`similarity.slowdowns.CENTRE`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupFingerprint:
    """Facts that a setup must share with the measured one for a correction to apply."""

    shape: str
    """Shape name of the model. Fine-tunes of one model have the same shape."""
    weights: str
    kv: str
    accelerator: str
    engine: str
    split: str

    def differences(self, other: "SetupFingerprint") -> list[str]:
        """Return the facts in which another setup differs, such as `weights: fp8, not bf16`."""
        return [
            f"{name}: {getattr(self, name)}, not {getattr(other, name)}"
            for name in self.__slots__
            if getattr(self, name) != getattr(other, name)
        ]


def fingerprint_of(deployment: Deployment, measured_engine: str) -> SetupFingerprint:
    """Return the fingerprint of a deployment on an engine.

    The data-parallel ranks of a dense model share nothing, so each rank has the fingerprint of a separate replica.
    """
    split, dense = deployment.parallelism, deployment.model.experts is None
    return SetupFingerprint(
        shape=shape_of(deployment.model),
        weights=weights_label(deployment.model),
        kv=str(deployment.chosen_cache_dtype),
        accelerator=deployment.accelerator.id,
        engine=measured_engine,
        split=str(replace(split, dp=1) if dense else split),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCorrection:
    """Factors on the predicted times of one setup, found from the user's own runs."""

    setup: SetupFingerprint
    errors: LoadErrors
    """Logarithms of the factors on the time of every step, by load, and their uncertainty."""
    prompt_log: float
    """Logarithm of a further factor on the time of prompt tokens, after the steps are corrected."""
    first_spread: Logs
    """P10 and P90 of a further run's time to first token over the corrected one, as logarithms."""
    source: str
    """Name of the calibration file, for the answer's sources."""
    must_fit: bool = True
    """Whether a question about other setups is an error. It is if the user named the file for this question."""

    def typical_spread(self, lengths: tuple[float, float] | None = None) -> Logs:
        """Return P10 and P90 of a further run with usual numbers of users over its prediction, as logarithms.

        `lengths` are the input and output tokens of its requests; None for those of the runs.
        """
        _, inputs, outputs = self.errors.loads
        pairs = set(zip(inputs.tolist(), outputs.tolist(), strict=True))
        if lengths is not None:
            pairs = {(float(np.log2(lengths[0])), float(np.log2(lengths[1])))}
        return self.errors.spread(log_loads([(users, *pair) for pair in sorted(pairs) for users in _USUAL_USERS]))


def log_loads(logs: Sequence[tuple[float, float, float]]) -> LogLoad:
    """Return loads, given as base-2 logarithms of users, input tokens and output tokens, as three arrays."""
    users, inputs, outputs = np.array(logs, np.float64).T
    return users, inputs, outputs
