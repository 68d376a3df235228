"""Looks up the first engine release whose registry lists a model architecture."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.fleet.release import Release

_UNDATED: Final = "?"
"""Marks an architecture that a later registry lists. The release that added it was not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchitectureSupport:
    """The first release of an engine that supports a model architecture."""

    architecture: str
    """Name of the architecture in the model's config."""
    registered: str
    """Name of the architecture in the engines' registries."""
    since: Release | None
    """First release that supports the architecture.

    The release is None if no registry lists the architecture, so that the engine would fall back on Transformers. It is
    also None if the checked release is older than every registry that was read.
    """
    too_new: bool
    """Whether the checked release is older than the first release that supports the architecture."""
    refused: bool = False
    """Whether the engine refuses the architecture, because no registry lists it and the engine has no other code."""


def architecture_support(
    architecture: str, engine: str, version: Release, table: Mapping[str, Any]
) -> ArchitectureSupport:
    """Return the first release of an engine that supports an architecture, and whether the checked release is older."""
    written = table[engine].get(architecture)
    dated = [Release(str(release)) for release in table[engine].values() if release != _UNDATED]
    begins, last_read = min(dated), Release(table[engine]["last_read"])
    # Architectures in the oldest registry read may be older than it: nothing is known about earlier releases.
    since = None if written in {None, _UNDATED} or version < begins else Release(str(written))
    return ArchitectureSupport(
        architecture=architecture,
        registered=table["registered"].get(architecture, architecture),
        since=since,
        too_new=since is not None and not version.reaches(*since.numbers[:3]),
        refused=written is None and engine in table["closed"] and version <= last_read,
    )
