"""What counts as a difference, and what is kept: the suite must be able to fail."""

import json
from pathlib import Path

import pytest

from contract.recording import MAX_SHOWN, SENTENCE, Recorder, Tally, compared_form, differences, shown_differences


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (1.234567890, 1.234567891),
        (1.0, -1.0),
        (0, 1e-300),
        (1, True),
        (None, 0),
        ("mi300x", "mi325x"),
        ([1, 2], [1]),
        ([], {}),
        ({"a": None}, {}),
    ],
)
def test_changes_are_differences(before: object, after: object) -> None:
    assert len(differences({"x": before}, {"x": after})) >= 1


@pytest.mark.parametrize(("before", "after"), [(1.0, 1), (0.1 + 0.2, 0.3), ({"a": 1, "b": 2}, {"b": 2, "a": 1})])
def test_last_bits_are_none(before: object, after: object) -> None:
    assert differences({"x": before}, {"x": after}) == []


def test_renamed_key_names_both() -> None:
    found = differences({"a": [{"old": 1.5}]}, {"a": [{"new": 1.5}]})
    assert found == ["a[0].old: 1.5 -> absent", "a[0].new: absent -> 1.5"]


def test_sentences_alone_are_not_kept() -> None:
    kept = compared_form(
        ["A model fits here.", "mi300x tp1 bf16 8", "run \\\n  with all of these", "three short words"]
    )
    assert kept == [SENTENCE, "mi300x tp1 bf16 8", "run \\\n  with all of these", "three short words"]


def test_twenty_differences_are_shown() -> None:
    found = differences(list(range(50)), list(range(1, 51)))
    lines = shown_differences("door/name", found).splitlines()
    assert (lines[0], lines[-1]) == ("door/name: 50 differences", "... and 30 more")
    assert len(lines) == MAX_SHOWN + 2


def test_accepting_keeps_and_reports(tmp_path: Path) -> None:
    tally = Tally()
    accepting = Recorder(accept=True, tally=tally, folder=tmp_path)
    accepting("door", "name", {"value": 1.0000000001})
    accepting("door", "name", {"value": 1.0000000002})
    assert tally.differences[1].splitlines()[1:] == ["value: 1.0000000001 -> 1.0000000002"]
    assert json.loads((tmp_path / "door" / "name.json").read_text()) == {"value": 1.0000000002}
    comparing = Recorder(accept=False, tally=Tally(), folder=tmp_path)
    comparing("door", "name", {"value": 1.0000000002})
    with pytest.raises(AssertionError, match=r"value: 1.0000000002 -> 1.1"):
        comparing("door", "name", {"value": 1.1})
    with pytest.raises(AssertionError, match="--accept"):
        comparing("door", "other", {"value": 1.1})


def test_nothing_here_imports_penstock() -> None:
    """An import would tie the suite to what is inside. One file adapts the doors of the policy."""
    for path in sorted(set(Path(__file__).parent.glob("*.py")) - {Path(__file__).with_name("policy_doors.py")}):
        lines = path.read_text(encoding="utf-8").splitlines()
        assert [line for line in lines if line.lstrip().startswith(("import penstock", "from penstock"))] == [], path
