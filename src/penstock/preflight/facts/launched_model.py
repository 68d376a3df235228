"""Compares the model in a launch command with the checked model.

The comparison uses the names and repositories in the catalog.
"""

from typing import Literal

from penstock.catalog import find_model
from penstock.errors import UnknownName
from penstock.preflight.facts.situation import Subject

Comparison = Literal["same", "other", "cannot_tell"]


def compare_served(subject: Subject, served: str) -> Comparison:
    """Return whether the model in the launch command is the checked model.

    A path cannot be compared with a repository.
    """
    if _plain(served) in {_plain(subject.name), _plain(subject.repository or subject.name)}:
        return "same"
    ours = None if subject.repository is None else catalog_id(subject.repository)
    theirs = catalog_id(served)
    if ours is None or theirs is None:
        return "cannot_tell"
    return "same" if ours == theirs else "other"


def catalog_id(name: str) -> str | None:
    """Return the catalog id of a repository or a short name. Return None for a path or an unknown name."""
    try:
        return find_model(name).id
    except UnknownName:
        return None


def _plain(name: str) -> str:
    return name.rstrip("/").casefold()
