"""Reads a YAML file into the dataclass that declares its shape.

The file's JSON schema is generated from the same dataclass.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from penstock.errors import UsageError
from penstock.reading.scalars import parse_number

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from pydantic_core import ErrorDetails

    from penstock.reading.yaml_tree import Place, YamlTree

_UNKNOWN: Final = ("extra_forbidden", "unexpected_keyword_argument")
_PROBLEMS: Final = {
    **dict.fromkeys(("dataclass_type", "dict_type", "mapping_type"), "must have keys, such as `name: value`"),
    **dict.fromkeys(("list_type", "tuple_type"), "must be a list; start each entry with a dash or write [a, b]"),
    **dict.fromkeys(("string_type", "string_too_short", "literal_error"), "must be a single word or sentence"),
}

_T = TypeVar("_T")
_U = TypeVar("_U")


def file_config(**keys: str) -> Mapping[str, object]:
    """Return the `__pydantic_config__` for the class of a whole file.

    Classes for the parts of the file inherit this configuration. `keys` maps a field's name to its key in the file, if
    the two names differ. For example, a fleet file writes the field `expert_parallel` under the key `ep`.
    """
    return {
        "extra": "forbid",
        "str_min_length": 1,
        "alias_generator": lambda name: keys.get(name, name),
    }


class FieldError(UsageError):
    """Error about one value inside a checked table or list.

    `place` is the path from the table or list to the wrong value.
    """

    def __init__(self, problem: str, *place: str | int) -> None:
        name = " ".join(str(step + 1) if isinstance(step, int) else step for step in place)
        super().__init__(f"{name}: {problem}")
        self.problem, self.place = problem, place


@dataclass(frozen=True, slots=True, kw_only=True)
class FileShape(Generic[_T]):
    """Type of a file: the name of the type, and the dataclass that declares the keys."""

    of: type[_T]
    kind: str
    written_by: str
    """Command that writes files of this type."""
    title: str
    version: int | None = None
    """Number that the key `version` must have. None if files of this type have no key `version`."""

    def read(self, text: str, where: str) -> _T:
        """Read a file. An error message is one line with the file name, the line, the key and the correction."""
        return self.validate(self.parse(text, where))

    def parse(self, text: str, where: str) -> "YamlTree":
        """Parse the YAML of a file."""
        from penstock.reading.yaml_tree import parse_yaml  # noqa: PLC0415 - `fit` knows these classes and reads no YAML

        return parse_yaml(text, where, kind=self.kind, written_by=self.written_by)

    def convert(self, tree: "YamlTree", make: Callable[[_T], _U]) -> _U:
        """Convert the contents of a file with `make`.

        An error that `make` raises is reported like an error in the file.
        """
        found = self.validate(tree)
        try:
            return make(found)
        except FieldError as error:
            raise tree.error(error.place, error.problem) from None
        except UsageError as error:
            raise tree.error((), str(error)) from None

    def validate(self, tree: "YamlTree") -> _T:
        """Return the values of a parsed file as an instance of the dataclass."""
        from pydantic_core import ValidationError  # noqa: PLC0415 - a tenth of a second that `--help` must not pay

        self._check_version(tree)
        given = tree.without_nulls()
        if given != tree.value:
            try:
                self._adapter().validate_python(tree.value)
            except ValidationError as error:
                self._refuse(tree, [entry for entry in error.errors() if entry["type"] in _UNKNOWN])
        try:
            made: _T = self._adapter().validate_python(given)
        except ValidationError as error:
            self._refuse(tree, error.errors())
            raise
        return made

    def _adapter(self) -> "TypeAdapter[Any]":
        return _adapter(cast("type", self.of))

    def _check_version(self, tree: "YamlTree") -> None:
        if self.version is None or not isinstance(tree.value, dict):
            return
        found = tree.value.get("version")
        if found is None:
            raise tree.error((), "has no `version`; add `version: ...`")
        try:
            same = isinstance(found, str) and parse_number(found) == self.version
        except UsageError as error:
            raise tree.error(("version",), str(error)) from None
        if not same:
            raise tree.error(
                ("version",),
                f"this penstock reads version {self.version}; write the file again with `{self.written_by}`",
            )

    def _refuse(self, tree: "YamlTree", errors: "Sequence[ErrorDetails]") -> None:
        """Raise the first error in the file.

        Unknown keys come before all other errors, because an unknown key often causes the other errors.
        """
        found = [(entry["type"] not in _UNKNOWN, tree.line(_place(entry)), entry) for entry in errors]
        if not found:
            return
        _, _, first = min(found, key=lambda entry: entry[:2])
        place, kind = _place(first), first["type"]
        if kind in _UNKNOWN:
            known = _known_keys(_plain_schema(cast("type", self.of)), place[:-1])
            near = get_close_matches(str(place[-1]), known, n=1, cutoff=0.6)
            hint = f"did you mean `{near[0]}`?" if near else f"known keys: {', '.join(known)}"
            raise tree.unknown_key(place, hint) from None
        if kind == "missing":
            missing = [
                entry["loc"][-1] for entry in errors if entry["type"] == kind and _place(entry)[:-1] == place[:-1]
            ]
            named, added = (", ".join(f"`{key}{after}`" for key in dict.fromkeys(missing)) for after in ("", ": ..."))
            raise tree.error(place[:-1], f"has no {named}; add {added}") from None
        raise tree.error(place, _problem(first)) from None

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of the file, for completion in editors."""
        made = _json_schema(cast("type", self.of), documented=True)
        if self.version is not None:
            made["properties"]["version"] = {"const": self.version}
            made["required"] = ["version", *(key for key in made.get("required", ()) if key != "version")]
        _drop_titles(made)
        return {**made, "$schema": "https://json-schema.org/draft/2020-12/schema", "title": self.title}

    def document(self, value: _T) -> dict[str, Any]:
        """Return a value of the dataclass as plain tables and lists, in the form that `read` accepts."""
        made: dict[str, Any] = self._adapter().dump_python(value, mode="json", by_alias=True)
        return made


def _drop_titles(schema: object) -> None:
    """Remove schema titles, which only repeat the names of keys and classes.

    A key that is named `title` is kept, because its value is a table and not a text.
    """
    if isinstance(schema, dict):
        if isinstance(schema.get("title"), str):
            del schema["title"]
        for value in schema.values():
            _drop_titles(value)
    elif isinstance(schema, list):
        for value in schema:
            _drop_titles(value)


def _place(entry: "ErrorDetails") -> "Place":
    error = entry.get("ctx", {}).get("error")
    return (*entry["loc"], *(error.place if isinstance(error, FieldError) else ()))


def _problem(entry: "ErrorDetails") -> str:
    context, kind = entry.get("ctx", {}), entry["type"]
    if kind == "value_error":
        error = context["error"]
        return error.problem if isinstance(error, FieldError) else str(error)
    if kind == "literal_error" and isinstance(entry["input"], str) and entry["input"]:
        allowed = ", ".join(re.findall(r"'([^']*)'", context["expected"]))
        return f"'{entry['input'][:40]}' is not one of {allowed}"
    return _PROBLEMS.get(kind, entry["msg"].splitlines()[0])


def _known_keys(schema: Mapping[str, Any], place: "Place") -> list[str]:
    """Return the allowed keys of the table at a place in the file."""
    at: Mapping[str, Any] = schema
    for step in place:
        at = _table_or_list(schema, at)
        inner = at.get("items") if isinstance(step, int) else at.get("properties", {}).get(step)
        at = inner or at.get("additionalProperties") or {}
    return list(_table_or_list(schema, at).get("properties", ()))


def _table_or_list(schema: Mapping[str, Any], at: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of the table or list, if the schema at a place in the file has alternatives."""
    at = _resolve_reference(schema, at)
    if {"properties", "items", "additionalProperties"} & set(at):
        return at
    options = (_table_or_list(schema, option) for option in at.get("anyOf", at.get("oneOf", ())))
    return next(filter(None, options), {})


def _resolve_reference(schema: Mapping[str, Any], at: Mapping[str, Any]) -> Mapping[str, Any]:
    while "$ref" in at:
        at = schema["$defs"][at["$ref"].rpartition("/")[2]]
    return at


@cache
def _adapter(kind: type) -> "TypeAdapter[Any]":
    from pydantic import TypeAdapter  # noqa: PLC0415 - as above

    return TypeAdapter(kind)


@cache
def _plain_schema(kind: type) -> Mapping[str, Any]:
    return _json_schema(kind, documented=False)


def _json_schema(kind: type, *, documented: bool) -> dict[str, Any]:
    """Return the JSON schema of a class.

    If `documented` is true, the schema describes each key by its docstring. Reading the docstrings takes a third of a
    second.
    """
    from pydantic import TypeAdapter  # noqa: PLC0415 - as above
    from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue  # noqa: PLC0415 - as above
    from pydantic_core.core_schema import WithDefaultSchema  # noqa: PLC0415 - as above

    class EditorSchema(GenerateJsonSchema):
        """JSON schema generator that includes a default only if the default is one word or number."""

        def default_schema(self, schema: WithDefaultSchema) -> JsonSchemaValue:
            made = super().default_schema(schema)
            default = made.pop("default", None)
            if isinstance(default, dict):  # a number with its range
                default = default.get("value")
            return {**made, "default": default} if isinstance(default, str | int | float | bool) else made

    # The classes inherit the setting from the list type. The schema of the list itself is then left out.
    listed: TypeAdapter[Any] = TypeAdapter(list[kind], config={"use_attribute_docstrings": documented})  # type: ignore[valid-type]
    made = listed.json_schema(mode="validation", schema_generator=EditorSchema)
    return {**_resolve_reference(made, made["items"]), "$defs": made["$defs"]}
