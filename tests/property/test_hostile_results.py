"""Changed result files of load tools are read, judged and written, or end in one line.

100,000 changed files took 26 minutes on one core (`make fuzz-results`, 2026-11-19).
"""

import io
import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from effort import fuzz_cases
from load_results import CLOSED_LOOPS, FOLDER
from penstock.api.results import results
from penstock.errors import PenstockError

_REPORT = "benchmark-report"
_VALUES: list[Any] = [
    *(None, True, -1, 0, 5e-324, 1e-9, 1e9, 1e308, 10**400, float("nan"), float("inf")),
    *("", "text", "a\nb", "\x1b[31m", "\ud800", [], {}, [[]], {"a": 1}),
]
_CHANGES = fuzz_cases(150, 12_500)
"""Changed files per format."""
_CONSOLE = Console(file=io.StringIO(), width=80)


@pytest.mark.parametrize("tool", [*CLOSED_LOOPS, _REPORT])
def test_a_changed_file_is_read_or_ends_in_one_line(shared: Path, tmp_path: Path, tool: str) -> None:
    source = _report(shared, tmp_path) if tool == _REPORT else shared / FOLDER / CLOSED_LOOPS[tool]
    files = sorted(source.iterdir()) if source.is_dir() else [source]
    changed = tmp_path / "changed"
    changed.mkdir()
    for path in files:
        (changed / path.name).write_bytes(path.read_bytes())
    draw, read = random.Random(tool), 0
    for _ in range(_CHANGES):
        path = draw.choice([one for one in files if one.suffix in {".json", ".jsonl", ".yaml"}])
        (changed / path.name).write_text(_change(path, draw), encoding="utf-8", errors="surrogatepass")
        read += _is_read(changed if source.is_dir() else changed / path.name, tmp_path / "reports")
        (changed / path.name).write_bytes(path.read_bytes())
    assert 0 < read < _CHANGES  # both outcomes occur


def _report(shared: Path, folder: Path) -> Path:
    """Write the Benchmark Report of a run."""
    (path,) = results([shared / FOLDER / CLOSED_LOOPS["aiperf"]]).write_reports(folder)
    return path


def _is_read(path: Path, reports: Path) -> bool:
    """Return whether a file is read, shown and written; fail if it ends in anything but an error of one line."""
    try:
        answer = results([path])
    except PenstockError as error:
        lines = str(error).count("\n")
        return lines > 0 and pytest.fail(str(error))
    _CONSOLE.print(answer.render(80))
    json.dumps(answer.to_json())
    answer.write_reports(reports)
    return True


def _change(path: Path, draw: random.Random) -> str:
    text = path.read_text(encoding="utf-8")
    if draw.random() < 0.1:
        place = draw.randrange(len(text))
        return text[:place] + draw.choice(["", "{", "]", "\x00", "9" * 400]) + text[place + draw.randrange(1, 50) :]
    write = json.dumps
    if path.suffix == ".yaml":
        document: Any = yaml.safe_load(text)
        write = yaml.safe_dump
    else:
        document = json.loads(text.splitlines()[0] if text.count("\n{") else text)
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
    return write(document)
