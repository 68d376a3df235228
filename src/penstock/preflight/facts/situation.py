"""What is asked about? A checkpoint on a device under an engine, started in a certain way on a certain host."""

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
    """What the safetensors headers say, without their names."""

    dtypes: frozenset[str]
    kinds: frozenset[str]
    """Last words of the names: weight, weight_scale, k_scale, ..."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedFacts:
    """What `fp8 scan` found in the bytes."""

    fp8_nan: bool
    e8m0_top: bool


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The checkpoint."""

    model: ModelSpec
    scheme: Scheme
    name: str
    """What a launch command calls it: a path or a repository."""
    repository: str | None = None
    """The hub repository it is; None for a checkpoint on disk."""
    rope: str | None = None
    """How its config scales rotary positions; None where the config at hand does not say."""
    stored: StoredFacts | None = None
    scanned: ScannedFacts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How the engine is started: flags without their dashes, environment variables, image."""

    flags: Mapping[str, str] = field(default_factory=dict)
    """A flag that takes no value has the value `true`."""
    environment: Mapping[str, str] = field(default_factory=dict)
    image: str | None = None
    typed: tuple[str, ...] = ()
    """The words of a line of the user's own; none of a launch preflight proposes."""
    bare: frozenset[str] = frozenset()
    """Flags such a line gives no value."""
    torn: tuple[str, ...] = ()
    """What of it a shell would not read as it was meant."""
    visible_devices: int | None = None
    """How many devices it lets the engine see; None where it hides none."""

    def flag(self, *names: str) -> str | None:
        """Return the value of the first of these flags that is set."""
        return next((self.flags[name] for name in names if name in self.flags), None)


@dataclass(frozen=True, kw_only=True)
class Situation:
    """Everything facts are derived from."""

    subject: Subject
    accelerator: Accelerator
    engine: EngineName
    version: Release
    parallelism: Parallelism
    launch: Launch
    host: Mapping[str, str] = field(default_factory=dict)
    """What the user says about the machine: rocm, triton, python, mec_firmware, numa_balancing, install, ..."""
    attention_backend: str | None = None
    """The backend the launch asks for, by its flag or by the variable of older releases."""
