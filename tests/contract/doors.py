"""Asks the installed `penstock` command: many calls in one process of its Python, or each as a process of its own."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from contract.driver import MAX_CALL_S
from contract.inputs import write_inputs

FOLDER: Final = Path(__file__).parent
REPOSITORY: Final = FOLDER.parents[1]
INPUTS: Final = (
    FOLDER / "files",
    REPOSITORY / "examples" / "fleets",
    REPOSITORY / "examples" / "traces",
    REPOSITORY / "tests" / "data" / "hosts",
)
"""Every file of these folders is in the folder of every call, under its name."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a call wrote, and how it exited. Its folder and home are written as `<folder>`, `<home>`."""

    exit_code: int
    stdout: str
    stderr: str
    folder: Path
    processor_s: float
    """Of the call alone, without the start of a process."""

    @property
    def json(self) -> Any:  # noqa: ANN401 - any document
        """The JSON document on standard output."""
        assert self.stdout, f"exit code {self.exit_code}, nothing on standard output: {self.stderr}"
        return json.loads(self.stdout)


def command_path() -> Path:
    """Return the command of the installed wheel when PENSTOCK_COMMAND names it, else of this checkout."""
    own = shutil.which("penstock", path=str(Path(sys.executable).parent)) or "penstock"
    return Path(os.environ.get("PENSTOCK_COMMAND") or own)


def environment(home: Path) -> Mapping[str, str]:
    """Return the environment of every call: a known terminal, no caches of the user, one thread of linear algebra."""
    source = {} if os.environ.get("PENSTOCK_COMMAND") else {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    return {
        "PATH": f"{command_path().parent}:{os.environ['PATH']}",
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
        "XDG_DATA_HOME": str(home / "data"),
        "PENSTOCK_TRIAL_CACHE": "off",
        "COLUMNS": "132",
        "NO_COLOR": "1",
        "TERM": "dumb",
        "TZ": "UTC",
        "LC_ALL": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        **source,
    }


def write_all_inputs(folder: Path) -> Path:
    """Write the input files of all calls into a folder."""
    for source in INPUTS:
        shutil.copytree(source, folder, dirs_exist_ok=True)
    write_inputs(folder)
    return folder


def fill(folder: Path, inputs: Path) -> Path:
    """Put the input files into the folder of a call."""
    shutil.copytree(inputs, folder, dirs_exist_ok=True, copy_function=os.link)
    return folder


def _answer(found: Mapping[str, Any], folder: Path, home: Path) -> Answer:
    texts = {
        name: str(found[name]).replace(str(folder), "<folder>").replace(str(home), "<home>")
        for name in ("stdout", "stderr")
    }
    seconds = float(found.get("processor_s", 0.0))
    return Answer(exit_code=int(found["exit_code"]), folder=folder, processor_s=seconds, **texts)


@dataclass(frozen=True, kw_only=True)
class Driver:
    """A process of the command's Python that answers calls one after another."""

    process: subprocess.Popen[str]
    home: Path

    def __call__(self, words: str | Sequence[str], folder: Path, given: str = "") -> Answer:
        """Answer one call in this folder, with `given` on standard input."""
        call = {
            "words": words.split() if isinstance(words, str) else list(words),
            "folder": str(folder),
            "input": given,
        }
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(call) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the driver ended during {call['words']}"
        return _answer(json.loads(line), folder, self.home)


@contextmanager
def running_driver(home: Path) -> Iterator[Driver]:
    """Run a driver until the block ends."""
    process = subprocess.Popen(
        [str(command_path().with_name("python")), str(FOLDER / "driver.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=home,
        env=dict(environment(home)),
    )
    try:
        yield Driver(process=process, home=home)
    finally:
        process.communicate(timeout=MAX_CALL_S)


def run_process(words: str | Sequence[str], folder: Path, home: Path, given: str = "") -> Answer:
    """Run the command as a process of its own, as a shell does."""
    done = subprocess.run(
        [str(command_path()), *(words.split() if isinstance(words, str) else words)],
        input=given,
        capture_output=True,
        text=True,
        timeout=MAX_CALL_S,
        check=False,
        cwd=folder,
        env=dict(environment(home)),
    )
    return _answer({"exit_code": done.returncode, "stdout": done.stdout, "stderr": done.stderr}, folder, home)


@cache
def has_module(name: str) -> bool:
    """Return whether the Python of the command has a module, such as that of an extra."""
    asked = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({name!r}) is None)"
    return subprocess.run([str(command_path().with_name("python")), "-c", asked], check=False).returncode == 0
