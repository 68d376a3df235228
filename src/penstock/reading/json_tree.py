"""Reads values out of a JSON document of somebody else's program. Each error is one line that names the key."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, isfinite
from typing import cast

from penstock.errors import UnreadableFile

_SHOWN_CHARACTERS = 40


@dataclass(frozen=True, slots=True)
class JsonTree:
    """Value inside a JSON document, with the name of the file and the path of keys to the value."""

    value: object
    where: str
    path: tuple[str | int, ...] = ()

    def find(self, *keys: str | int) -> "JsonTree | None":
        """Return the value below these keys, or None if a key is absent or its value is null."""
        value = self.value
        for key in keys:
            if isinstance(value, dict) and isinstance(key, str):
                value = value.get(key)
            elif isinstance(value, list) and isinstance(key, int) and key < len(value):
                value = value[key]
            else:
                return None
        return None if value is None else JsonTree(value, self.where, (*self.path, *keys))

    def at(self, *keys: str | int) -> "JsonTree":
        """Return the value below these keys. A missing value is an error."""
        found = self.find(*keys)
        if found is None:
            raise JsonTree(None, self.where, (*self.path, *keys)).error("is missing")
        return found

    def __contains__(self, key: str) -> bool:
        return self.find(key) is not None

    def items(self) -> Iterator["JsonTree"]:
        """Yield the entries of a list."""
        if not isinstance(self.value, list):
            raise self.error("must be a list")
        return (JsonTree(value, self.where, (*self.path, place)) for place, value in enumerate(self.value))

    def keys(self) -> list[str]:
        """Return the keys of a table."""
        if not isinstance(self.value, dict):
            raise self.error("must be a table")
        return [str(key) for key in self.value]

    def number(self, *keys: str | int, low: float = 0.0, high: float = inf) -> float:
        """Return a finite number within bounds."""
        found = self.at(*keys)
        if isinstance(found.value, bool) or not isinstance(found.value, int | float):
            raise found.error("must be a number")
        try:
            value = float(found.value)
        except OverflowError:
            value = inf
        if not isfinite(value) or not low <= value <= high:
            raise found.error(f"must be between {low:g} and {high:g}" if high < inf else f"must be at least {low:g}")
        return value

    def number_or_none(self, *keys: str | int, low: float = 0.0, high: float = inf) -> float | None:
        """Return a finite number within bounds, or None if it is absent."""
        found = self.find(*keys)
        return None if found is None else found.number(low=low, high=high)

    def whole(self, *keys: str | int, low: int = 0) -> int:
        """Return a whole number of at least `low`."""
        found = self.at(*keys)
        value = found.number(low=low)
        if value != int(value):
            raise found.error("must be a whole number")
        return int(value)

    def text(self, *keys: str | int) -> str:
        """Return a text that is not empty."""
        found = self.at(*keys)
        if not isinstance(found.value, str) or not found.value.strip():
            raise found.error("must be a text")
        return found.value.strip()

    def text_or_none(self, *keys: str | int) -> str | None:
        """Return a text, or None if it is absent or empty."""
        found = self.find(*keys)
        return found.value.strip() or None if found is not None and isinstance(found.value, str) else None

    def error(self, problem: str) -> UnreadableFile:
        """Return the error that this value has a problem."""
        path = ".".join(str(step) for step in self.path) or "the document"
        shown = "" if self.value is None else f", not {str(self.value)[:_SHOWN_CHARACTERS]!r}"
        return UnreadableFile(f"{self.where}: {path} {problem}{shown}")


def parse_json(text: str, where: str) -> JsonTree:
    """Parse a JSON document."""
    try:
        return JsonTree(cast("object", json.loads(text)), where)
    except (ValueError, RecursionError):
        raise UnreadableFile(
            f"{where}: is not a JSON document; give the result file that the load tool wrote"
        ) from None


def parse_json_lines(text: str, where: str) -> list[JsonTree]:
    """Parse a file with one JSON document per line."""
    return [
        parse_json(line, f"{where} line {number}") for number, line in enumerate(text.splitlines(), 1) if line.strip()
    ]
