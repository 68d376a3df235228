"""Describes how the user's own runs correct the predicted times of one setup."""

from dataclasses import dataclass, replace

from penstock.fleet.deployment import Deployment
from penstock.performance.calibration.error_summary import Logs
from penstock.performance.similarity.cases import shape_of, weights_label


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
    step_log: float
    """Logarithm of the factor on the time of every step."""
    step_spread: Logs
    """P10 and P90 of a further measurement over the corrected prediction of a step's time, as logarithms."""
    first_log: float
    """Logarithm of a further factor on the time to first token, after the steps are corrected."""
    first_spread: Logs
    source: str
    """Name of the calibration file, for the answer's sources."""
    must_fit: bool = True
    """Whether a question about other setups is an error. It is if the user named the file for this question."""
