"""Builds JSON documents. A document is a TypedDict whose annotations say where each value comes from.

A field takes the value of the result's attribute of the same name. With `Annotated[str,
at("deployment.accelerator.id")]`, the value is looked up along a path of attributes instead. With `at(function)`, the
value is what the function returns for the result. A field of type `Literal["penstock.fit/1"]` has that text as its
value. The JSON schema is generated from the same class, so each document is declared once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from math import isinf
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin

from typing_extensions import get_type_hints, is_typeddict

from penstock.report.drawing.plain_json import plain

Document = TypeVar("Document")


@dataclass(frozen=True, slots=True)
class FieldSource:
    """Source of a field's value: a path of attributes, or a function that maps the result to the value."""

    path: str | Callable[[Any], object]

    def value_of(self, result: object) -> object:
        """Return the value of the field for a result. The value is None if an attribute on the path is None."""
        if not isinstance(self.path, str):
            return self.path(result)
        for name in self.path.split("."):
            if result is None:
                return None
            result = getattr(result, name)
        return result


def at(path: str | Callable[[Any], object]) -> FieldSource:
    """Declare the source of a field's value, for use in `Annotated`."""
    return FieldSource(path)


def build(document: type[Document], result: object, **given: object) -> Document:
    """Build a document from a result. Values in `given` replace the values that the result has for these fields."""
    fields = _fields(document)  # type: ignore[arg-type] # a class is hashable
    values = {
        name: _convert(annotation, given[name] if name in given else source.value_of(result))
        for name, (annotation, source) in fields.items()
    }
    return cast("Document", values)


def schema_name(document: type) -> str:
    """Return the name and version in a document's `schema` field."""
    return str(get_args(_fields(document)["schema"][0])[0])


@cache
def _fields(document: type) -> Mapping[str, tuple[Any, FieldSource]]:
    """Return the type and the source of each field, in the order of declaration."""
    hints = get_type_hints(document, include_extras=True)
    return {name: _typed_source(name, annotation) for name, annotation in hints.items()}


def _typed_source(name: str, annotation: Any) -> tuple[Any, FieldSource]:  # noqa: ANN401 - a type
    if get_origin(annotation) is Annotated:
        annotation, source = get_args(annotation)
        return annotation, source
    if name == "schema" and get_origin(annotation) is Literal:
        return annotation, FieldSource(lambda _: get_args(annotation)[0])
    return annotation, FieldSource(name)


def _convert(annotation: Any, value: Any) -> object:  # noqa: ANN401 - a type and its value
    """Convert a value to JSON types according to its annotation.

    If the annotation is a document type, build that document from the value. If it is `str`, convert the value to text.
    Convert all other values with `plain`.
    """
    if value is None:
        return None
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in {Union, UnionType}:
        if isinstance(value, float) and isinf(value):
            return None  # stands for a fleet that does not exist
        kinds = [kind for kind in arguments if kind is not type(None)]
        return _convert(kinds[0], value) if len(kinds) == 1 else plain(value)
    if origin is list:
        return [_convert(arguments[0], entry) for entry in value]
    if origin is dict:
        return {str(plain(key)): _convert(arguments[1], entry) for key, entry in value.items()}
    if is_typeddict(annotation) and not isinstance(value, dict):
        return build(annotation, value)
    if annotation is str:
        return value.value if isinstance(value, Enum) else str(value)
    return plain(value)
