"""The input from which facts are derived: a checkpoint, an accelerator, an engine, a launch and a host."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock.catalog.accelerator import Accelerator
from penstock.fleet import Parallelism
from penstock.fleet.release import Release
from penstock.fleet.serving_engines import ServingEngine
from penstock.model import ModelSpec
from penstock.model.config_json import Config
from penstock.preflight.facts.quantisation_scheme import Scheme


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFacts:
    """Summary of a checkpoint's safetensors headers, without the full tensor names."""

    dtypes: frozenset[str]
    kinds: frozenset[str]
    """Last components of tensor names, such as weight, weight_scale or k_scale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedFacts:
    """Results of `penstock fp8 scan` on the bytes of a checkpoint."""

    fp8_nan: bool
    e8m0_top: bool


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The checkpoint that a preflight checks."""

    model: ModelSpec
    scheme: Scheme
    name: str
    """Path or repository of the checkpoint, as a launch command names it."""
    repository: str | None = None
    """Hub repository of the checkpoint. The repository is None for a checkpoint on disk."""
    assumed: str = ""
    """What is assumed of the checkpoint without its own config, for notes; empty if its config was read."""
    rope: str | None = None
    """Type of RoPE scaling in the checkpoint's config. The type is None if the available config does not state it."""
    stored: StoredFacts | None = None
    scanned: ScannedFacts | None = None


UNKNOWN_ARCHITECTURE: Final = "unknown"
"""Stands for the architecture of a repository whose config is not at hand."""


@dataclass(frozen=True, kw_only=True)
class UnreadModel:
    """A checkpoint whose shape no reader of this version knows, or whose config is not at hand."""

    name: str
    """Path or repository of the checkpoint, as a launch command names it."""
    architecture: str
    """The architecture that the config names, or UNKNOWN_ARCHITECTURE."""
    reason: str
    """Sentence that says why the shape is not read."""
    config: Config | None
    """The config. None if it is not at hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A launch. A launch consists of flags, stored without their dashes, environment variables and an image."""

    flags: Mapping[str, str] = field(default_factory=dict)
    """Value of each flag. A flag without a value has the value `true`."""
    environment: Mapping[str, str] = field(default_factory=dict)
    image: str | None = None
    typed: tuple[str, ...] = ()
    """Words of the user's own command. The tuple is empty for a launch that preflight proposes."""
    bare: frozenset[str] = frozenset()
    """Flags to which the user's command gives no value."""
    one_dash: frozenset[str] = frozenset()
    """Flags that the user's command spells with one dash, which the engine's parser refuses. They count as meant."""
    torn: tuple[str, ...] = ()
    """Descriptions of the places in the user's command that a shell would misread."""
    visible_devices: int | None = None
    """Number of devices visible to the engine. The number is None if all devices are visible."""
    slices: bool = False
    """Whether the devices that the command names are MIG slices."""

    def flag(self, *names: str) -> str | None:
        """Return the value of the first named flag that is set, or None if none of them is set."""
        return next((self.flags[name] for name in names if name in self.flags), None)


@dataclass(frozen=True, kw_only=True)
class LaunchSituation:
    """A launch on an accelerator and a host: the input of the facts that need no model."""

    accelerator: Accelerator
    engine: ServingEngine
    version: Release
    parallelism: Parallelism
    launch: Launch
    host: Mapping[str, str] = field(default_factory=dict)
    """Facts about the host that the user states: rocm, triton, python, mec_firmware, numa_balancing, install, ..."""
    attention_backend: str | None = None
    """The attention backend that the launch requests by a flag or, in older releases, by an environment variable."""


@dataclass(frozen=True, kw_only=True)
class Situation(LaunchSituation):
    """The complete input from which facts are derived."""

    subject: Subject
