"""Names the new name of an option that was renamed."""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Final

from penstock.errors import UsageError

RENAMED: Final[Mapping[tuple[str, str], str]] = {
    ("predict", "--light"): "--roofline",
    ("route", "--door"): "--protocol",
}
"""Command and former name of an option, mapped to its name today."""


def refuse_renamed(arguments: Sequence[str]) -> None:
    """Raise a one-line error if the user typed an option by its former name. The first argument is the command."""
    for word in takewhile(lambda argument: argument != "--", arguments[1:]):
        former = word.partition("=")[0]
        if (now := RENAMED.get((arguments[0], former))) is not None:
            raise UsageError(f"{former} is now {now}")
