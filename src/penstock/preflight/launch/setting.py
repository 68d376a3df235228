"""A flag or an environment variable of a launch, with the reason for it."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A flag or an environment variable, its value, and the reason for it. The value is None for a switch."""

    name: str
    value: str | None
    why: str


def first_of_each(settings: Iterable[Setting]) -> tuple[Setting, ...]:
    """Keep the first setting of every name.

    The caller lists the user's choices before the settings of a chip or recipe.
    """
    kept: dict[str, Setting] = {}
    for setting in settings:
        kept.setdefault(setting.name, setting)
    return tuple(kept.values())
