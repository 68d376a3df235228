"""A file that is not there, a folder, or no text: one line with the fix, and the same exit code everywhere."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Run = Callable[..., CompletedProcess[str]]


@pytest.mark.parametrize(
    "command",
    [
        ("plan", "{}"),
        ("audit", "{}"),
        ("simulate", "--fleet", "{}"),
        ("simulate", "llama-3.1-8b", "--on", "h100:1", "--trace", "{}"),
        ("fit", "{}", "--on", "h100"),
    ],
)
@pytest.mark.parametrize("kind", ["missing", "folder", "binary"])
def test_one_line_and_exit_3(penstock_here: Run, tmp_path: Path, command: tuple[str, ...], kind: str) -> None:
    suffix = ".csv" if command[0] == "audit" or "--trace" in command else ".yaml" if command[0] != "fit" else ".json"
    path = tmp_path / f"named{suffix}"
    if kind == "folder":
        path.mkdir()
    elif kind == "binary":
        path.write_bytes(b"\x80\xff\x00\x01" * 20)
    result = penstock_here(*(part.format(path) for part in command))
    assert result.returncode == 3, result.stderr
    assert result.stderr.count("\n") == 1
    assert "named" in result.stderr
