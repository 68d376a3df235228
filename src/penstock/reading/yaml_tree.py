"""Converts YAML text into plain values. The line of each value is stored, so that an error can name the line."""

from collections.abc import Sequence
from typing import Final

import yaml

from penstock.errors import UsageError

Place = Sequence[str | int]
"""Keys and list indices from the top of a file to a value."""
_MAX_CHARACTERS: Final = 1_000_000
_MAX_VALUES: Final = 1_000_000
"""Maximum number of values in a file after its aliases are expanded. A few lines of nested aliases can expand to
billions."""
_NULL: Final = "tag:yaml.org,2002:null"


class Scalar(str):
    """Text of one scalar without surrounding spaces; `tag` is its YAML type."""

    __slots__ = ("tag",)
    tag: str

    def typed_value(self) -> object:
        """Return the scalar as a value of its YAML type."""
        try:
            return yaml.SafeLoader("").construct_object(yaml.ScalarNode(self.tag, str(self)), deep=True)
        except (yaml.YAMLError, ValueError, OverflowError):
            return None


class YamlTree:
    """One YAML document. Tables are dicts, lists are lists, scalars are texts, and nulls are None."""

    def __init__(self, node: yaml.Node, where: str, kind: str) -> None:
        """Convert a YAML document. `kind` names the type of file."""
        self.where, self.kind, self._root = where, kind, node
        self._sizes: dict[int, int | None] = {}
        self._values: dict[int, object] = {}
        self._measure(node)
        self.value = self._value(node)

    def without_nulls(self) -> object:
        """Return the document without the keys that have no value, so that these keys get their default."""
        return _without_nulls(self.value)

    def error(self, place: Place, problem: str) -> UsageError:
        """Return an error about the value at a place in the document.

        The error states the line and the name of the value.
        """
        node, name = self._find(place)
        return UsageError(f"{self.where}:{_line(node)}: {name}: {problem}")

    def unknown_key(self, place: Place, hint: str) -> UsageError:
        """Return an error about a key that is unknown in its table."""
        node, _ = self._find(place)
        _, table = self._find(place[:-1])
        return UsageError(f"{self.where}:{_line(node)}: `{str(place[-1])[:40]}` is not a key of {table}; {hint}")

    def line(self, place: Place) -> int:
        """Return the line number of a value, counted from one."""
        return _line(self._find(place)[0])

    def _find(self, place: Place) -> tuple[yaml.Node, str]:
        """Return the YAML node at a place in the document, and the name of the node.

        If the document has no value at this place, return the last node on the path to the place.
        """
        node, name = self._root, f"the {self.kind}"
        for step in place:
            if isinstance(node, yaml.MappingNode):
                found = next((value for key, value in node.value if _key(key) == step), None)
                if found is None:
                    break
                node, name = found, str(step)
            elif isinstance(node, yaml.SequenceNode) and isinstance(step, int):
                node, name = node.value[step], f"{name} {step + 1}"
            else:
                break
        return node, name

    def _measure(self, node: yaml.Node) -> int:
        """Count the values under a node after aliases are expanded.

        Raise an error for cycles and for too many values.
        """
        size = self._sizes.get(id(node), 0)
        if size is None:
            raise UsageError(
                f"{self.where}:{_line(node)}: an alias refers to the value that contains it; write out the value"
            )
        if size:
            return size
        self._sizes[id(node)] = None
        size = 1 + sum(self._measure(child) for child in _children(node))
        if size > _MAX_VALUES:
            raise UsageError(
                f"{self.where}:{_line(node)}: aliases expand to more than {_MAX_VALUES:,} values; use fewer aliases"
            )
        self._sizes[id(node)] = size
        return size

    def _value(self, node: yaml.Node) -> object:
        if id(node) not in self._values:
            self._values[id(node)] = self._convert(node)
        return self._values[id(node)]

    def _convert(self, node: yaml.Node) -> object:
        if isinstance(node, yaml.MappingNode):
            table: dict[str, object] = {}
            for key, value in node.value:
                name = _key(key)
                if name in table:
                    raise UsageError(f"{self.where}:{_line(key)}: {name}: is written twice; keep one")
                table[name] = self._value(value)
            return table
        if isinstance(node, yaml.SequenceNode):
            return [self._value(child) for child in node.value]
        if node.tag == _NULL:
            return None
        scalar = Scalar(str(node.value).strip())
        scalar.tag = node.tag
        return scalar


def parse_yaml(text: str, where: str, *, kind: str, written_by: str) -> YamlTree:
    """Parse a YAML text. `written_by` is the command that writes files of this type."""
    if len(text) > _MAX_CHARACTERS:
        raise UsageError(
            f"{where}: {len(text):,} characters are too many for a {kind}; the limit is {_MAX_CHARACTERS:,}"
        )
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UsageError(f"{where}:{line}: {error.problem or 'not YAML'}; check indentation and quotes") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise UsageError(f"{where}: not YAML: {str(error).splitlines()[0][:120]}") from None
    if node is None:
        raise UsageError(f"{where}: the file is empty; `{written_by}` writes one to start from")
    return YamlTree(node, where, kind)


def _without_nulls(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_nulls(entry) for key, entry in value.items() if entry is not None}
    if isinstance(value, list):
        return [_without_nulls(entry) for entry in value]
    return value


def _key(node: yaml.Node) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) else "?"


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [value for _, value in node.value]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
