"""Defines the types of values in a file.

Each type of value has a Python type, a function that parses the value, and a JSON schema.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from math import inf
from typing import TYPE_CHECKING, Annotated, Any, Final

from penstock.errors import UsageError
from penstock.units import parse_tokens

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler
    from pydantic_core import CoreSchema

Schema = dict[str, Any]
VALUE_TYPE: Final = "value_type"
"""Key under which a core schema stores the type of the parsed value."""
_PERCENT: Final = re.compile(r"(-?\d{1,9}(?:\.\d{1,9})?)\s*%")
_NUMBER: Final = re.compile(r"(-?)\$?\s?(-?\d[\d_,]*(?:\.\d+)?(?:e[+-]?\d{1,3})?)\s?([km]?)\$?", re.IGNORECASE)
_THOUSANDS: Final = {"": 1.0, "k": 1e3, "m": 1e6}
_WHOLE_PERCENT: Final = 100
_MAX_TIMES: Final = 10
"""A number whose upper bound is at most this value is a fraction or a growth factor."""
_MANY: Final = 10**9
"""Error messages do not mention an upper bound that is at least this value."""
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True, slots=True, eq=False)
class Parsed:
    """Annotation of a type whose values are written as one scalar.

    The annotation holds the parser of the scalar and the JSON schema.
    """

    parse: Callable[[str], object]
    schema: Mapping[str, object]
    write: Callable[[Any], object] | None = None
    """Function that converts a value back to the text in the file. None if the value is written unchanged."""
    expected: str = "must be a single word or sentence"
    """Error message if the file has a table, a list or an empty text instead of the scalar."""

    def read(self, raw: object) -> object:
        """Parse a scalar. A table, a list or an empty text is an error."""
        if not isinstance(raw, str) or not raw:
            raise UsageError(self.expected)
        return self.parse(raw)

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> "CoreSchema":
        return self.core_schema(source)

    def core_schema(self, value_type: object = None) -> "CoreSchema":
        """Return pydantic's core schema, which defines how the value is read and written."""
        from pydantic_core import core_schema  # noqa: PLC0415 - only where a file is read

        written = None if self.write is None else core_schema.plain_serializer_function_ser_schema(self.write)
        return core_schema.no_info_plain_validator_function(
            self.read, serialization=written, metadata={VALUE_TYPE: value_type}
        )

    def __get_pydantic_json_schema__(self, schema: Any, handler: "GetJsonSchemaHandler") -> Schema:  # noqa: ANN401 - pydantic's
        return result_schema(schema, handler) or dict(self.schema)


def result_schema(schema: Any, handler: "GetJsonSchemaHandler") -> Schema | None:  # noqa: ANN401 - pydantic's
    """Return the JSON schema of the value in a result.

    Return None for the schema of a file, which has the value as text.
    """
    if handler.mode == "validation":
        return None
    from pydantic import TypeAdapter  # noqa: PLC0415 - only where schemas are published

    return TypeAdapter(schema["metadata"][VALUE_TYPE]).json_schema(mode="serialization")


def number(*, low: float = 0.0, high: float = inf, unit: float = 1.0, digits: int = 17) -> Parsed:
    """Return a parser of numbers such as 12, 1_000, 0.08, 8%, 25k or $25,000.

    The file states the number in multiples of `unit`. Numbers are written with at most `digits` significant digits.
    """
    plain = unit == 1 and digits >= 17
    write = None if plain else lambda value: float(f"{value / unit:.{digits}g}")
    return Parsed(lambda text: parse_number(text, low=low, high=high) * unit, {"type": ["number", "string"]}, write)


def whole(*, low: int = 0, high: int = _MANY) -> Parsed:
    """Return a parser of integers."""
    return Parsed(lambda text: _whole(text, low=low, high=high), {"type": ["integer", "string"]})


def parse_number(text: str, *, low: float = 0.0, high: float = inf) -> float:
    """Parse a number and check its bounds."""
    value = _amount(text)
    if low <= value <= high:
        return value
    if value < low and high >= _MANY:
        raise UsageError(f"{value:g} is too small; write {low:g} or more")
    share = low < 1 and high <= _MAX_TIMES and "%" not in text
    percent = share and max(1.0, high) < value <= _WHOLE_PERCENT
    hint = f"; write {value:g}% if percent is meant" if percent else ""
    raise UsageError(f"{value:g} is outside {low:g} to {high:g}{hint}")


def _amount(text: str) -> float:
    percent, plain = _PERCENT.fullmatch(text), _NUMBER.fullmatch(text)
    if percent is not None:
        return float(percent[1]) / 100
    if plain is None or (plain[1] and plain[2].startswith("-")):
        raise UsageError(f"'{text[:40]}' is not a number; write 12, 0.08, 8%, 25k or $25,000")
    digits = plain[2].replace("_", "").replace(",", "")
    return float(f"{plain[1]}{digits}") * _THOUSANDS[plain[3].lower()]


def _whole(text: str, *, low: int, high: int) -> int:
    value = parse_number(text, low=low, high=high)
    if value != int(value):
        raise UsageError(f"{value:g} is not a whole number; write {round(value):,} without a fraction")
    return int(value)


def _tokens(text: str) -> int:
    return parse_tokens(text.replace("_", "").replace(",", ""))


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text if _DAY.fullmatch(text) else "")
    except ValueError:
        raise UsageError(f"'{text[:40]}' is not a date; write 2027-06-01") from None


def _flag(text: str) -> bool:
    return _one_of(text, ("true", "false")) == "true"


def choice(*words: str) -> Parsed:
    """Return a parser that accepts one of the given words in upper or lower case."""
    return Parsed(lambda text: _one_of(text, words), {"enum": list(words)})


def _one_of(text: str, words: tuple[str, ...]) -> str:
    if text.lower() not in words:
        raise UsageError(f"'{text[:40].lower()}' is not one of {', '.join(words)}")
    return text.lower()


_TYPED: Final = "must be a number, true, false or a word"


def _parse_scalar(text: str) -> object:
    from penstock.reading.yaml_tree import Scalar  # noqa: PLC0415 - only where a file is read

    found = text.typed_value() if isinstance(text, Scalar) else text
    if not isinstance(found, str | int | float | bool):
        raise UsageError(_TYPED)
    return found


@dataclass(frozen=True, slots=True)
class _LowerCase:
    """Annotation of text and of `Literal` types whose values may be written in upper or lower case."""

    def __get_pydantic_core_schema__(self, source: object, handler: Callable[[object], "CoreSchema"]) -> "CoreSchema":
        from pydantic_core import core_schema  # noqa: PLC0415 - only where a file is read

        return core_schema.no_info_before_validator_function(_lower, handler(source))


def _lower(raw: object) -> object:
    return raw.lower() if isinstance(raw, str) else raw


@dataclass(frozen=True, slots=True, eq=False)
class OrText:
    """Annotation of a list or a table that may also be written as text. The function `make` converts the text."""

    make: Callable[[str], object]
    schema: Mapping[str, object] = field(default_factory=lambda: {"type": "string"})

    def __get_pydantic_core_schema__(self, source: object, handler: Callable[[object], "CoreSchema"]) -> "CoreSchema":
        from pydantic_core import core_schema  # noqa: PLC0415 - only where a file is read

        return core_schema.no_info_before_validator_function(self._validate, handler(source))

    def _validate(self, raw: object) -> object:
        return self.make(raw) if isinstance(raw, str) and raw else raw

    def __get_pydantic_json_schema__(self, schema: Any, handler: "GetJsonSchemaHandler") -> Schema:  # noqa: ANN401 - pydantic's
        return handler(schema) if handler.mode == "serialization" else {"oneOf": [dict(self.schema), handler(schema)]}


LOWER_CASE: Final = _LowerCase()
Number = Annotated[float, number()]
Count = Annotated[int, whole(low=1)]
Whole = Annotated[int, whole()]
TOKENS: Final = Parsed(_tokens, {"type": ["integer", "string"], "minimum": 1})
DAY: Final = Parsed(_date, {"type": "string", "format": "date"})
FLAG: Final = Parsed(_flag, {"type": "boolean"})
Tokens = Annotated[int, TOKENS]
Day = Annotated[date, DAY]
Flag = Annotated[bool, FLAG]
Typed = Annotated[
    str | int | float | bool, Parsed(_parse_scalar, {"type": ["string", "number", "boolean"]}, expected=_TYPED)
]
Text = Annotated[str, Parsed(str, {"type": ["string", "number"]})]
"""Text that may look like a number, for example a version."""
Word = Annotated[str, LOWER_CASE]
