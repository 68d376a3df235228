"""Compares an answer with the recorded one: every number, truth value, null, key and identifier.

Sentences are not compared, only that there is one: a text with four words or more of letters alone, which is kept as
`SENTENCE`. `mi300x tp1 bf16 8` is an identifier.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeGuard

RECORDED: Final = Path(__file__).parent / "recorded"
SENTENCE: Final = "<sentence>"
_COMMAND: Final = re.compile(r" \\\n")
"""A command over several lines is compared: it is what users paste."""
MASK: Final = "<varies>"
ABSENT: Final = "absent"
SENTENCE_WORDS: Final = 4
_WORD: Final = re.compile(r"(?<!\S)[(\"'`]?[A-Za-z]+[-'A-Za-z]*[.,;:)\"'`]*(?!\S)")
TOLERANCE: Final = 2e-11
"""Relative. A change of the tenth significant digit is larger, the last bits of another processor are smaller."""
MAX_SHOWN: Final = 20
LINE: Final = 120

Leaf = str | int | float | bool | None


@dataclass(frozen=True, kw_only=True)
class Mask:
    """A place of an answer that truly varies, with the reason."""

    place: str
    """Regular expression of the whole path of a leaf, such as `.*\\.elapsed_s`."""
    reason: str


MASKS: Final = (Mask(place=r"answer\.learned\[\d+\]\.seconds", reason="how long this machine took to read a release"),)
"""The folder of a call and the home of the user are written as `<folder>` and `<home>` before anything is compared."""


@dataclass(kw_only=True)
class Tally:
    """What was compared in one test."""

    answers: int = 0
    values: int = 0
    numbers: int = 0
    differences: list[str] = field(default_factory=list)


def compared_form(answer: object, masks: Sequence[Mask] = MASKS) -> Any:  # noqa: ANN401 - JSON
    """Return the answer as it is kept: sentences and what varies are replaced."""
    return _kept(answer, "", [re.compile(mask.place) for mask in masks])


def _kept(value: object, path: str, masks: Sequence[re.Pattern[str]]) -> object:
    if isinstance(value, Mapping):
        return {str(key): _kept(entry, _below(path, str(key)), masks) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_kept(entry, f"{path}[{place}]", masks) for place, entry in enumerate(value)]
    if any(mask.fullmatch(path) for mask in masks):
        return MASK
    if isinstance(value, str) and len(_WORD.findall(value)) >= SENTENCE_WORDS and not _COMMAND.search(value):
        return SENTENCE
    return value


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def leaves(value: object, path: str = "") -> Iterator[tuple[str, Leaf]]:
    """Yield every leaf with its path. An empty list or object is a leaf too."""
    if isinstance(value, Mapping) and value:
        for key, entry in value.items():
            yield from leaves(entry, _below(path, key))
    elif isinstance(value, list) and value:
        for place, entry in enumerate(value):
            yield from leaves(entry, f"{path}[{place}]")
    elif isinstance(value, Mapping | list):
        yield path, "{}" if isinstance(value, Mapping) else "[]"
    else:
        assert value is None or isinstance(value, str | int | float), path
        yield path, value


def differences(before: object, after: object, tolerance: float = TOLERANCE) -> list[str]:
    """Return `path: before -> after` of every leaf that differs."""
    old, new = dict(leaves(before)), dict(leaves(after))
    return [
        f"{path}: {_shown(old, path)} -> {_shown(new, path)}"
        for path in dict.fromkeys((*old, *new))
        if path not in old or path not in new or not same(old[path], new[path], tolerance)
    ]


def same(before: Leaf, after: Leaf, tolerance: float) -> bool:
    """Return whether two leaves are equal; numbers within a relative tolerance, of which 0 has none."""
    if is_number(before) and is_number(after):
        return before == after or (
            math.isfinite(before) and math.isfinite(after) and math.isclose(before, after, rel_tol=tolerance, abs_tol=0)
        )
    return type(before) is type(after) and before == after


def is_number(value: Leaf) -> TypeGuard[float]:
    """Return whether a leaf is a number. A truth value is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(found: Mapping[str, Leaf], path: str) -> str:
    return json.dumps(found[path], ensure_ascii=False) if path in found else ABSENT


def shown_differences(name: str, found: Sequence[str]) -> str:
    """Return the first differences, one per line, with their count."""
    more = [f"... and {len(found) - MAX_SHOWN} more"] if len(found) > MAX_SHOWN else []
    return "\n".join((f"{name}: {len(found)} differences", *found[:MAX_SHOWN], *more))


@dataclass(frozen=True, kw_only=True)
class Recorder:
    """Compares answers of one test with the recorded ones, or records them."""

    accept: bool
    tally: Tally
    folder: Path = RECORDED

    def __call__(self, door: str, name: str, answer: object, *, tolerance: float = TOLERANCE) -> None:
        """Compare one answer; with `--accept`, keep it and report what changed."""
        path = self.folder / door / f"{name}.json"
        after = json.loads(json.dumps(compared_form(answer)))
        before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        found = differences(before, after, tolerance)
        values = [value for _, value in leaves(after)]
        self.tally.answers += 1
        self.tally.values += len(values)
        self.tally.numbers += sum(1 for value in values if is_number(value))
        if self.accept and (found or not path.exists()):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(written(after) + "\n", encoding="utf-8")
            self.tally.differences.append(shown_differences(f"{door}/{name}", found))
            return
        if not path.exists():
            raise AssertionError(f"{door}/{name} has no recorded answer; record it with --accept")
        if found:
            raise AssertionError(shown_differences(f"{door}/{name}", found) + "\nIf meant: pytest --accept")


def written(value: object, indent: int = 0) -> str:
    """Return JSON in which what fits a line is one line."""
    line = json.dumps(value, ensure_ascii=False)
    if len(line) + indent <= LINE or not isinstance(value, dict | list):
        return line
    pad = " " * (indent + 1)
    if isinstance(value, dict):
        parts = [f"{json.dumps(key, ensure_ascii=False)}: {written(entry, indent + 1)}" for key, entry in value.items()]
        return "{\n" + ",\n".join(pad + part for part in parts) + f"\n{' ' * indent}" + "}"
    if all(not isinstance(entry, dict | list) for entry in value):
        return (
            "[\n"
            + "\n".join(_wrapped([json.dumps(entry, ensure_ascii=False) for entry in value], pad))
            + f"\n{' ' * indent}]"
        )
    return "[\n" + ",\n".join(pad + written(entry, indent + 1) for entry in value) + f"\n{' ' * indent}]"


def _wrapped(texts: Sequence[str], pad: str) -> Iterator[str]:
    """Yield lines of a list of scalars, with commas between the scalars."""
    line = pad
    for place, text in enumerate(texts):
        part = text + ("," if place + 1 < len(texts) else "")
        if len(line) + len(part) >= LINE and line.strip():
            yield line.rstrip()
            line = pad
        line += part + " "
    yield line.rstrip()
