"""The stamp changes with what is compiled, and with nothing else."""

from collections.abc import Callable

import pytest

from penstock.compiled.source_stamp import PACKAGES, source_files, stamp_of

SOURCE = '''
"""A module."""

from typing import Annotated, Any, NamedTuple

import numpy as np

from penstock.compiled.marks import compiled
from penstock.errors import UsageError
from penstock.other import LIMIT

FACTOR = 3
ROW = np.dtype([("tokens", "i8")])
SHOWN = "for people"


class World(NamedTuple):
    """Arrays."""

    rows: Annotated[Any, ArrayOf(ROW)]


@compiled
def doubled(number: int) -> int:
    """Return the double."""
    # A comment.
    return min(FACTOR * number, LIMIT)


def shown(number: int) -> str:
    """Only Python runs it."""
    if number < 0:
        raise UsageError(SHOWN)
    return f"{number:,}"
'''


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("# A comment.", "# Another one."),
        ("Return the double.", "Return the number twice."),
        ('return f"{number:,}"', 'return f"{number:_}"'),
        ('SHOWN = "for people"', 'SHOWN = "for others"'),
        ("from penstock.errors import UsageError\n", "from penstock.errors import DeploymentError, UsageError\n"),
    ],
)
def test_an_edit_that_touches_nothing_compiled_keeps_the_stamp(before: str, after: str) -> None:
    assert before in SOURCE
    assert stamp_of([SOURCE.replace(before, after)]) == stamp_of([SOURCE])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("FACTOR * number", "FACTOR + number"),
        ("FACTOR = 3", "FACTOR = 4"),
        ('("tokens", "i8")', '("tokens", "i4")'),
        ("ArrayOf(ROW)", "ArrayOf(ROW, 2)"),
        ("from penstock.other import LIMIT", "from penstock.others import LIMIT"),
        ("number: int) -> int", "number: float) -> int"),
        ("@compiled", "@cold"),
    ],
)
def test_an_edit_of_compiled_code_or_of_a_record_changes_it(before: str, after: str) -> None:
    assert before in SOURCE
    assert stamp_of([SOURCE.replace(before, after)]) != stamp_of([SOURCE])


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text + "\n# A comment.\n",
        lambda text: text.replace('"""', '"""Reworded. ', 1),
        lambda text: (
            text + '\n\ndef _shown(number: int) -> str:\n    """Only Python runs it."""\n    return str(number)\n'
        ),
        lambda text: text + '\n\nSHOWN = "for people"\n',
        lambda text: text + "\n\nimport textwrap\n",
    ],
    ids=["comment", "docstring", "Python function", "constant", "import"],
)
def test_none_of_five_kinds_of_edits_rebuilds_the_library(edit: Callable[[str], str]) -> None:
    texts = [item.read_text(encoding="utf-8") for item in source_files(*PACKAGES)]
    edited = [edit(text) for text in texts]
    assert all(before != after for before, after in zip(texts, edited, strict=True))
    assert stamp_of(edited) == stamp_of(texts)


def test_the_builder_counts_as_a_whole() -> None:
    builder = "def emit():\n    return 3\n"
    assert stamp_of([SOURCE], [builder]) != stamp_of([SOURCE], [builder.replace("3", "2")])
    assert stamp_of([SOURCE], [builder]) == stamp_of([SOURCE], [builder + "# A comment.\n"])


def test_every_module_with_compiled_functions_is_covered() -> None:
    covered = {str(item) for item in source_files(*PACKAGES)}
    found = [item for item in source_files("penstock.compiled") if "\n@compiled\n" in item.read_text(encoding="utf-8")]
    assert not found
    marks = ("\n@compiled\n", "\n@cold\n", "\n@exported\n", "\n@exported_short\n", "\n@policy\n")
    marked = [item for item in source_files(*PACKAGES) if any(mark in item.read_text() for mark in marks)]
    assert len(marked) >= 17
    assert {str(item) for item in marked} <= covered
