"""The subject of a preflight: a checkpoint, accelerator, engine, launch and host."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.catalog.accelerator import Accelerator
from penstock.fleet import Parallelism
from penstock.fleet.engines import EngineName
from penstock.fleet.release import Release
from penstock.model import ModelSpec
from penstock.preflight.facts.quantisation_scheme import Scheme


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFacts:
    """Summary of the safetensors headers, without tensor names."""

    dtypes: frozenset[str]
    kinds: frozenset[str]
    """Last components of tensor names: weight, weight_scale, k_scale, ..."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedFacts:
    """Results of `fp8 scan` on the bytes."""

    fp8_nan: bool
    e8m0_top: bool


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The checkpoint."""

    model: ModelSpec
    scheme: Scheme
    name: str
    """Path or repository as a launch command names it."""
    repository: str | None = None
    """Hub repository; None for a checkpoint on disk."""
    rope: str | None = None
    """RoPE scaling of its config; None if the available config does not state it."""
    stored: StoredFacts | None = None
    scanned: ScannedFacts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A launch: flags without their dashes, environment variables and image."""

    flags: Mapping[str, str] = field(default_factory=dict)
    """Values by flag; a flag without a value has the value `true`."""
    environment: Mapping[str, str] = field(default_factory=dict)
    image: str | None = None
    typed: tuple[str, ...] = ()
    """Words of the user's own command; empty for a launch that preflight proposes."""
    bare: frozenset[str] = frozenset()
    """Flags without a value in the user's command."""
    torn: tuple[str, ...] = ()
    """Places that a shell would misread."""
    visible_devices: int | None = None
    """Number of devices visible to the engine; None if all are visible."""

    def flag(self, *names: str) -> str | None:
        """Return the value of the first of these flags that is set."""
        return next((self.flags[name] for name in names if name in self.flags), None)


@dataclass(frozen=True, kw_only=True)
class Situation:
    """Everything that facts are derived from."""

    subject: Subject
    accelerator: Accelerator
    engine: EngineName
    version: Release
    parallelism: Parallelism
    launch: Launch
    host: Mapping[str, str] = field(default_factory=dict)
    """Facts that the user states about the host: rocm, triton, python, mec_firmware, numa_balancing, install, ..."""
    attention_backend: str | None = None
    """The requested attention backend, by flag or by the variable of older releases."""
