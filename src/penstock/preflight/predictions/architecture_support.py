"""Does this release know the architecture? The first release whose registry lists it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.fleet.release import Release


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchitectureSupport:
    """Since when the engine serves this kind of model."""

    architecture: str
    """As the config names it."""
    registered: str
    """As the engines' registries name it."""
    since: Release | None
    """None where no registry that was read lists it: the engine would fall back on Transformers' code."""
    too_new: bool
    """Whether the release asked about is older."""


def architecture_support(
    architecture: str, engine: str, version: Release, table: Mapping[str, Any]
) -> ArchitectureSupport:
    """Look the architecture up."""
    written = table[engine].get(architecture)
    begins = min(Release(str(release)) for release in table[engine].values())
    # What was in the first registry that was read is that old or older: before it nothing is known.
    since = None if written is None or version < begins else Release(str(written))
    return ArchitectureSupport(
        architecture=architecture,
        registered=table["registered"].get(architecture, architecture),
        since=since,
        too_new=since is not None and not version.reaches(*since.numbers[:3]),
    )
