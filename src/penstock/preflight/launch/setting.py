"""A flag or variable of a launch, with its reason."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A flag or a variable, its value (None for a switch) and its reason."""

    name: str
    value: str | None
    why: str


def first_of_each(settings: Iterable[Setting]) -> tuple[Setting, ...]:
    """Keep the first setting of every name: the user's choices precede those of a recipe or chip."""
    kept: dict[str, Setting] = {}
    for setting in settings:
        kept.setdefault(setting.name, setting)
    return tuple(kept.values())
