"""Answers calls of `penstock` in one process of the Python that it is installed for: a start-up less per call.

Reads one JSON object per line (`words`, `folder`, `input`) and writes one per line (`exit_code`, `stdout`, `stderr`).
Each call is a fork with its own streams and folder; it enters at the console script, as a shell would. What the first
calls load (tables, models) is loaded before the forks. Uses the standard library alone, and no module of Penstock.
"""

import datetime as dt
import json
import os
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

TODAY: Final = dt.datetime(2026, 11, 19, 12, 0, tzinfo=dt.UTC)
"""The day of every call. No option of Penstock states it, so the class that commands ask for it is replaced."""
MAX_CALL_S: Final = 300
LIBRARIES: Final = ("click", "highspy", "numpy", "pydantic", "rich", "yaml")
"""What commands import; also what must be imported before the clock is replaced."""
LOADS: Final = (("predict", "llama-3.1-8b", "--on", "h100,mi300x"), ("preflight", "llama-3.1-8b", "--on", "h100"))
"""Calls before the forks, for what they load."""


class _Known(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, type(TODAY))


class PinnedClock(dt.datetime, metaclass=_Known):
    """A `datetime` for which it is always the same noon."""

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> Any:  # noqa: ANN401 - a plain datetime, not this class
        """Return the pinned noon."""
        return TODAY.astimezone(tz) if tz else TODAY.replace(tzinfo=None)


def main() -> None:
    """Answer the calls of standard input until it ends."""
    for library in LIBRARIES:
        import_module(library)
    dt.datetime = PinnedClock  # type: ignore[misc]
    (script,) = entry_points(group="console_scripts", name="penstock")
    command = script.load()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    calls = os.fdopen(os.dup(0), encoding="utf-8")
    folder = str(Path.cwd())
    for words in LOADS:
        _in_streams(command, words, folder, "")
    if threading.active_count() != 1:
        raise RuntimeError("a thread runs: a fork would be without it")
    for line in calls:
        print(json.dumps(_forked(command, json.loads(line))), file=answers, flush=True)


def _forked(command: Callable[[], None], call: dict[str, Any]) -> dict[str, Any]:
    """Run one call in a child, and read what it wrote."""
    with tempfile.TemporaryDirectory() as streams:
        child = os.fork()
        if child == 0:
            signal.alarm(MAX_CALL_S)
            os._exit(_in_streams(command, call["words"], call["folder"], call["input"], Path(streams)))
        _, status, used = os.wait4(child, 0)
        texts = {name: _text(Path(streams) / name) for name in ("stdout", "stderr")}
    seconds = used.ru_utime + used.ru_stime
    return {"exit_code": os.waitstatus_to_exitcode(status), "processor_s": seconds, **texts}


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _in_streams(
    command: Callable[[], None],
    words: list[str] | tuple[str, ...],
    folder: str,
    given: str,
    streams: Path | None = None,
) -> int:
    """Run a call in a folder, with its streams in files, and return its exit code."""
    os.chdir(folder)
    with tempfile.TemporaryFile("w+") as stdin:
        stdin.write(given)
        stdin.seek(0)
        os.dup2(stdin.fileno(), 0)
    for number, name in ((1, "stdout"), (2, "stderr")):
        opened = os.open(streams / name if streams else os.devnull, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(opened, number)
        os.close(opened)
    sys.argv = ["penstock", *words]
    try:
        command()
        code = 0
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:  # noqa: BLE001 - the exit code of a Python that ends so
        traceback.print_exc()
        code = 99
    sys.stdout.flush()
    sys.stderr.flush()
    return code


if __name__ == "__main__":
    main()
