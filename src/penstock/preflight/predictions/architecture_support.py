"""Looks up the first release whose registry lists an architecture."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.fleet.release import Release


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchitectureSupport:
    """The first release of an engine that supports an architecture."""

    architecture: str
    """Name in the config."""
    registered: str
    """Name in the engines' registries."""
    since: Release | None
    """First release; None if no registry lists the architecture, so that the engine would fall back on Transformers."""
    too_new: bool
    """Whether the checked release is older than that first release."""


def architecture_support(
    architecture: str, engine: str, version: Release, table: Mapping[str, Any]
) -> ArchitectureSupport:
    """Return the first release of an engine that supports an architecture, and whether the checked release is older."""
    written = table[engine].get(architecture)
    begins = min(Release(str(release)) for release in table[engine].values())
    # Architectures of the first registry that was read may be older: nothing is known before that release.
    since = None if written is None or version < begins else Release(str(written))
    return ArchitectureSupport(
        architecture=architecture,
        registered=table["registered"].get(architecture, architecture),
        since=since,
        too_new=since is not None and not version.reaches(*since.numbers[:3]),
    )
