"""Public doors: the functions of `penstock`, each with the command line that asks the same."""

import hashlib
import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import penstock
from penstock.errors import PenstockError

FOLDER: Final = Path(os.environ.get("PENSTOCK_AGREE", "build/agree"))
"""Folder of plan and guide files, so that every answer can be asked again."""
START: Final = "2026-12-01"
_FLAGS: Final = {"input_tokens": "in", "output_tokens": "out"}


@dataclass(frozen=True)
class Told:
    """What a door says."""

    command: str
    document: Any = None
    rows: tuple[Mapping[str, Any], ...] = ()
    refusal: str = ""
    """The one-line error, if the door refuses the question."""
    answer: Any = None

    @property
    def row(self) -> Mapping[str, Any]:
        """The first row; empty if there is none."""
        return self.rows[0] if self.rows else {}

    @property
    def fits(self) -> bool:
        """Whether the door says that the deployment runs."""
        return bool(self.row.get("fits", self.row.get("passes", False)))


def ask(door: str, **given: object) -> Told:
    """Ask a door about a model on accelerators. Equal questions of a process are asked once."""
    return _ask(door, tuple(sorted((name, value) for name, value in given.items() if value is not None)))


@cache
def _ask(door: str, given: tuple[tuple[str, object], ...]) -> Told:
    known = dict(given)
    flags = " ".join(_flag(name, value) for name, value in given if name not in {"model", "on"})
    command = f"penstock {door} {known['model']} --on {known['on']} {flags}".rstrip()
    try:
        answer = getattr(penstock, door)(known.pop("model"), known.pop("on"), **known)
    except PenstockError as refusal:
        return Told(command=command, refusal=str(refusal).splitlines()[0])
    return Told(command=command, document=answer.to_dict(), rows=tuple(answer.rows()))


def _flag(name: str, value: object) -> str:
    flag = "--" + _FLAGS.get(name, name).replace("_", "-")
    return flag if value is True else f"{flag} {shlex.quote(str(value))}"


def ask_file(door: str, question: Mapping[str, Any]) -> Told:
    """Ask `plan` or `guide` about a file, which is kept in the folder. JSON is YAML."""
    return _ask_file(door, json.dumps(question, indent=1))


@cache
def _ask_file(door: str, text: str) -> Told:
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{door}-{hashlib.sha256(text.encode()).hexdigest()[:10]}.yaml"
    path.write_text(text, encoding="utf-8")
    command = f"penstock {door} {path}"
    try:
        answer = getattr(penstock, door)(path)
    except PenstockError as refusal:
        return Told(command=command, refusal=str(refusal).splitlines()[0])
    return Told(command=command, document=answer.to_dict(), answer=answer)


@cache
def accelerator(name: str) -> Mapping[str, Any]:
    """Return what the catalog shows of an accelerator."""
    found: Mapping[str, Any] = penstock.catalog("show", name).to_dict()
    return found
