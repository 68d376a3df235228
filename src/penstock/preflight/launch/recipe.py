"""Did somebody run this model here? What vLLM's published recipes say, with the flags they add on AMD."""

from collections.abc import Mapping
from dataclasses import dataclass
from shlex import join
from typing import Any, Final

from penstock.catalog.accelerator import Accelerator
from penstock.fleet.release import Release

SOURCE: Final = "https://github.com/vllm-project/recipes/tree/8959cf64189c"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One model's entry, for one device."""

    model: str
    status: str
    """verified, unsupported, or not listed."""
    since: str | None
    """The first vLLM release that runs the model."""
    too_old: bool
    """Whether the release asked about is older."""
    amd_line: str | None
    """Variables and flags the recipe adds on AMD."""


def find_recipe(name: str, accelerator: Accelerator, version: Release, table: Mapping[str, Any]) -> Recipe | None:
    """Look a repository up; None where nobody published a recipe for it."""
    entry = table.get(name)
    if entry is None:
        return None
    # Recipes name chips (h200), the catalog boards (h200_sxm).
    status = entry["hardware"].get(accelerator.id.partition("_")[0], "not listed")
    since = entry.get("since")
    return Recipe(
        model=name,
        status=str(status),
        since=since,
        too_old=since is not None and _older(version, since),
        amd_line=_amd_line(entry) if accelerator.vendor == "amd" else None,
    )


def _older(version: Release, since: str) -> bool:
    return since[0].isdecimal() and version < Release(since)


def _amd_line(entry: Mapping[str, Any]) -> str | None:
    variables = [f"{name}={value}" for name, value in entry.get("amd_variables", {}).items()]
    line = " ".join((*variables, join(entry.get("amd_flags", ()))))
    return line.strip() or None
