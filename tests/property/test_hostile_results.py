"""Changed result files of load tools are read, or end in one line."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from effort import fuzz_cases
from load_results import CLOSED_LOOPS, FOLDER
from penstock.api.results import load_runs
from penstock.errors import PenstockError

_VALUES: list[Any] = [None, True, -1, 0, 1e308, 10**400, float("nan"), float("inf"), "", "text", [], {}, [[]], {"a": 1}]
_CHANGES = fuzz_cases(150, 15_000)
"""Changed files per load tool."""


@pytest.mark.parametrize("tool", CLOSED_LOOPS)
def test_a_changed_file_is_read_or_ends_in_one_line(shared: Path, tmp_path: Path, tool: str) -> None:
    source = shared / FOLDER / CLOSED_LOOPS[tool]
    files = sorted(source.iterdir()) if source.is_dir() else [source]
    for path in files:
        (tmp_path / path.name).write_bytes(path.read_bytes())
    draw, read = random.Random(tool), 0
    for _ in range(_CHANGES):
        path = draw.choice([one for one in files if one.suffix in {".json", ".jsonl"}])
        (tmp_path / path.name).write_text(_change(path.read_text(), draw))
        read += _is_read(tmp_path if source.is_dir() else tmp_path / path.name)
        (tmp_path / path.name).write_bytes(path.read_bytes())
    assert 0 < read < _CHANGES  # both outcomes occur


def _is_read(path: Path) -> bool:
    """Return whether a file is read; fail if it ends in anything but an error of one line."""
    try:
        load_runs(path)
    except PenstockError as error:
        lines = str(error).count("\n")
        return lines > 0 and pytest.fail(str(error))
    return True


def _change(text: str, draw: random.Random) -> str:
    if draw.random() < 0.1:
        place = draw.randrange(len(text))
        return text[:place] + draw.choice(["", "{", "]", "\x00", "9" * 400]) + text[place + draw.randrange(1, 50) :]
    document: Any = json.loads(text.splitlines()[0] if text.count("\n{") else text)
    value = document
    while True:  # walk down to a random place
        keys: list[Any] = list(value) if isinstance(value, dict) else list(range(min(3, len(value))))
        key = draw.choice(keys)
        if not isinstance(value[key], dict | list) or not value[key] or draw.random() < 0.2:
            break
        value = value[key]
    if isinstance(value, dict) and draw.random() < 0.3:
        del value[key]
    else:
        value[key] = draw.choice(_VALUES)
    return json.dumps(document)
