"""Reads hand-written YAML strictly; every error names the line and the fix."""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from typing import Final, NoReturn, Self, TypeVar

import yaml

from penstock.errors import UsageError
from penstock.units import parse_tokens

_MAX_CHARACTERS: Final = 1_000_000
_PERCENT: Final = re.compile(r"(-?\d{1,9}(?:\.\d{1,9})?)\s*%")
_NUMBER: Final = re.compile(r"(-?)\$?\s?(-?\d[\d_,]*(?:\.\d+)?(?:e[+-]?\d{1,3})?)\s?([km]?)\$?", re.IGNORECASE)
_THOUSANDS: Final = {"": 1.0, "k": 1e3, "m": 1e6}
_WHOLE_PERCENT: Final = 100
_MAX_TIMES: Final = 10
"""Upper bound up to which a value is a fraction or a growth factor."""
_MANY: Final = 10**9
"""Upper bound above which error messages do not mention it."""
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}")

_T = TypeVar("_T")


def read_table(text: str, where: str, *, kind: str, written_by: str) -> "Table":
    """Parse YAML into a table with line numbers.

    `kind` names the type of file, `written_by` the command that writes one.
    """
    if len(text) > _MAX_CHARACTERS:
        raise UsageError(f"{where}: {len(text):,} characters cannot be a {kind}; the limit is {_MAX_CHARACTERS:,}")
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UsageError(f"{where}:{line}: {error.problem or 'not YAML'}; check indentation and quotes") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise UsageError(f"{where}: not YAML: {str(error).splitlines()[0][:120]}") from None
    if node is None:
        raise UsageError(f"{where}: the file is empty; `{written_by}` writes one to start from")
    return Table(Value(node, where, f"the {kind}"))


def empty_table(name: str) -> "Table":
    """Return an empty table, in which every key takes its default."""
    mark = yaml.Mark(name, 0, 0, 0, None, None)
    return Table(Value(yaml.MappingNode("tag:yaml.org,2002:map", [], start_mark=mark), name, name))


class Value:
    """One value of the file, with its place and its parsers."""

    def __init__(self, node: yaml.Node, where: str, name: str) -> None:
        self.node, self.where, self.name = node, where, name

    @property
    def line(self) -> int:
        """Line number, counted from one."""
        return int(self.node.start_mark.line) + 1

    def refuse(self, problem: str) -> NoReturn:
        """Raise an error about this value."""
        raise UsageError(f"{self.where}:{self.line}: {self.name}: {problem}")

    @property
    def is_table(self) -> bool:
        """Whether it has keys of its own."""
        return isinstance(self.node, yaml.MappingNode)

    @property
    def is_list(self) -> bool:
        """Whether it is a list."""
        return isinstance(self.node, yaml.SequenceNode)

    def table(self, *keys: str) -> "Table":
        """Parse a table; with `keys`, no others are allowed."""
        return Table(self).only(*keys) if keys else Table(self)

    def items(self) -> "Iterator[Value]":
        """Yield the entries of a list."""
        if not isinstance(self.node, yaml.SequenceNode):
            self.refuse("must be a list; start each entry with a dash or write [a, b]")
        for number, node in enumerate(self.node.value, start=1):
            yield Value(node, self.where, f"{self.name} {number}")

    def text(self) -> str:
        """Parse a word or a sentence."""
        if not isinstance(self.node, yaml.ScalarNode) or not str(self.node.value).strip():
            self.refuse("must be a single word or sentence")
        return str(self.node.value).strip()

    def number(self, *, low: float = 0.0, high: float = float("inf")) -> float:
        """Parse 12, 1_000, 0.08, 8%, 25k or $25,000."""
        text = self.text()
        value = self._amount(text)
        if not low <= value <= high:
            share = low < 1 and high <= _MAX_TIMES and "%" not in text
            percent = share and max(1.0, high) < value <= _WHOLE_PERCENT
            hint = f"; write {value:g}% if percent is meant" if percent else ""
            if value < low and high >= _MANY:
                self.refuse(f"{value:g} is too little; write {low:g} or more")
            self.refuse(f"{value:g} is outside {low:g} to {high:g}{hint}")
        return value

    def _amount(self, text: str) -> float:
        percent, plain = _PERCENT.fullmatch(text), _NUMBER.fullmatch(text)
        if percent is not None:
            return float(percent[1]) / 100
        if plain is None or (plain[1] and plain[2].startswith("-")):
            self.refuse(f"'{text[:40]}' is not a number; write 12, 0.08, 8%, 25k or $25,000")
        digits = plain[2].replace("_", "").replace(",", "")
        return float(f"{plain[1]}{digits}") * _THOUSANDS[plain[3].lower()]

    def whole(self, *, low: int = 0, high: int = 10**9) -> int:
        """Parse an integer."""
        value = self.number(low=low, high=high)
        if value != int(value):
            self.refuse(f"{value:g} is not a whole number; write {round(value):,} without a fraction")
        return int(value)

    def tokens(self) -> int:
        """Parse 4096 or 4k."""
        return self.parsed(lambda text: parse_tokens(text.replace("_", "").replace(",", "")))

    def parsed(self, read: "Callable[[str], _T]") -> "_T":
        """Parse text with a given parser; its error gets this line."""
        try:
            return read(self.text())
        except UsageError as error:
            self.refuse(str(error))

    def made(self, read: "Callable[[Table], Callable[[], _T]]") -> "_T":
        """Parse a table and build its object; errors of the constructor get this line."""
        make = read(self.table())
        try:
            return make()
        except UsageError as error:
            self.refuse(str(error))

    def date(self) -> date:
        """Parse 2027-06-01."""
        text = self.text()
        try:
            return date.fromisoformat(text if _DAY.fullmatch(text) else "")
        except ValueError:
            self.refuse(f"'{text[:40]}' is not a date; write 2027-06-01")

    def flag(self) -> bool:
        """Parse true or false."""
        return self.choice(("true", "false")) == "true"

    def scalar(self) -> str | int | float | bool:
        """Parse a scalar of any type."""
        try:
            found = yaml.SafeLoader("").construct_object(self.node, deep=True)
        except (yaml.YAMLError, ValueError, OverflowError):
            found = None
        if not isinstance(found, str | int | float | bool):
            self.refuse("must be a number, true, false or a word")
        return found

    def choice(self, known: tuple[str, ...]) -> str:
        """Parse one of a few words."""
        text = self.text().lower()
        if text not in known:
            self.refuse(f"'{text[:40]}' is not one of {', '.join(known)}")
        return text


class Table:
    """Keys and values. Callers declare the keys first, so that a misspelt key is reported before a missing one."""

    def __init__(self, value: Value) -> None:
        if not isinstance(value.node, yaml.MappingNode):
            value.refuse("must have keys, such as `name: value`")
        self.value = value
        self.entries: Mapping[str, Value] = dict(self._entries(value.node))
        self.known: tuple[str, ...] = ()

    def _entries(self, node: yaml.MappingNode) -> Iterator[tuple[str, Value]]:
        seen: set[str] = set()
        for key, entry in node.value:
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else "?"
            if name in seen:
                Value(key, self.value.where, name).refuse("is written twice; keep one")
            seen.add(name)
            yield name, Value(entry, self.value.where, name)

    def only(self, *keys: str) -> Self:
        """Declare the allowed keys; raise for any other, with the closest allowed one."""
        self.known = keys
        for name, entry in self.entries.items():
            if name not in keys:
                near = difflib.get_close_matches(name, keys, n=1, cutoff=0.6)
                hint = f"did you mean `{near[0]}`?" if near else f"known keys: {', '.join(keys)}"
                raise UsageError(f"{entry.where}:{entry.line}: `{name[:40]}` is not a key of {self.value.name}; {hint}")
        return self

    def get(self, key: str) -> Value | None:
        """Return the value of a key; None if it is missing or empty."""
        if key not in self.known:
            raise LookupError(f"`{key}` is read from {self.value.name}, whose reader does not name it in only()")
        return self._found(key)

    def _found(self, key: str) -> Value | None:
        found = self.entries.get(key)
        return None if found is None or found.node.tag == "tag:yaml.org,2002:null" else found

    def required(self, key: str) -> Value:
        """Return the value of a required key."""
        return self._there(key, self.get(key))

    def _there(self, key: str, found: Value | None) -> Value:
        if found is None:
            self.value.refuse(f"has no `{key}`; add `{key}: ...`")
        return found

    def version(self, known: int, *, written_by: str) -> None:
        """Raise for a file of another version, before its unknown keys are reported."""
        found = self._there("version", self._found("version"))
        if found.whole() != known:
            found.refuse(f"this penstock reads version {known}; write the file again with `{written_by}`")

    def section(self, key: str) -> "Table":
        """Return the table of an optional key; empty if missing."""
        found = self.get(key)
        return empty_table(key) if found is None else found.table()

    def optional(self, key: str, read: "Callable[[Value], _T]", otherwise: _T) -> _T:
        """Parse an optional key."""
        found = self.get(key)
        return otherwise if found is None else read(found)

    def every(self) -> Iterator[tuple[str, Value]]:
        """Yield every key with its value."""
        yield from self.entries.items()
