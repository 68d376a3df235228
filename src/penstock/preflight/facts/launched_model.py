"""Compares the model in a launch command with the checked model.

The comparison uses the names and repositories in the catalog.
"""

import re
from typing import Final, Literal

from penstock.catalog import find_model
from penstock.errors import UnknownName
from penstock.preflight.facts.situation import Subject

Comparison = Literal["same", "other", "cannot_tell"]
_FORMAT: Final = re.compile(r"-(fp8|fp4|nvfp4|mxfp4|mxfp8|awq|gptq|int4|int8|w4a16|w8a8|bnb|gguf)(-.*)?", re.IGNORECASE)
"""Ending of a repository that holds the weights of another one in a different format."""


def compare_served(subject: Subject, served: str) -> Comparison:
    """Return whether the model in the launch command is the checked model.

    A path cannot be compared with a repository.
    """
    if _plain(served) in {_plain(subject.name), _plain(subject.repository or subject.name)}:
        return "same"
    ours = None if subject.repository is None else catalog_id(subject.repository)
    theirs = catalog_id(served)
    if subject.repository is not None and theirs is None and _is_converted(subject.repository, served):
        return "other"
    if ours is None or theirs is None:
        return "cannot_tell"
    return "same" if ours == theirs else "other"


def catalog_id(name: str) -> str | None:
    """Return the catalog id of a repository or a short name. Return None for a path or an unknown name."""
    try:
        return find_model(name).id
    except UnknownName:
        return None


def _is_converted(repository: str, served: str) -> bool:
    """Return whether `served` is named as a repository with the weights of `repository` in another format."""
    owner, _, name = _plain(served).rpartition("/")
    ours = _plain(repository).rpartition("/")[2]
    is_repository = re.fullmatch(r"[\w-][\w.-]*", owner) is not None
    return is_repository and name.startswith(ours) and _FORMAT.fullmatch(name[len(ours) :]) is not None


def _plain(name: str) -> str:
    return name.rstrip("/").casefold()
