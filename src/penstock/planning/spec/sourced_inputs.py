"""Defines inputs with their range and source, and how a plan file states them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any

from penstock.catalog.seller import SellerClass
from penstock.errors import UsageError
from penstock.reading.scalars import VALUE_TYPE, number, result_schema

if TYPE_CHECKING:
    from pydantic_core import CoreSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One number of the plan: the value used, its possible range, and its source."""

    value: float
    low: float
    high: float
    unit: str
    source: str
    given: bool = False
    """Whether the plan file states this input; otherwise it is a default."""
    sellers: int = 0
    """Number of sellers whose catalog prices give the value; 0 if the value is not a catalog price."""
    seller_class: SellerClass | None = None
    """Class of these sellers; None if the value is not a catalog price."""
    estimated: bool = False
    """Whether the value is what a median seller would ask, because few sellers publish a price."""

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:
            said = f"low {self.low:g}, value {self.value:g}, high {self.high:g} {self.unit}"
            raise UsageError(f"{said}: must satisfy low <= value <= high")

    def at(self, value: float) -> "Input":
        """Return the input with the given value; the range is extended to include that value."""
        return replace(self, value=value, low=min(self.low, value), high=max(self.high, value))

    @property
    def uncertain(self) -> bool:
        """Return whether this input has a range."""
        return self.low < self.high


def exact_or_ranged(
    value: float, unit: str, *, source: str | None = None, span: tuple[float, float] | None = None
) -> Input:
    """Return an input for a number in the plan file; a number without a range is exact."""
    low, high = span or (value, value)
    return Input(value=value, low=low, high=high, unit=unit, source=source or "plan file", given=True)


@dataclass(frozen=True, slots=True, eq=False)
class Stated:
    """Annotation of an `Input`. In a plan file, an input is a number, or a table of value, low, high and source."""

    unit: str
    low: float = 0.0
    high: float = inf
    price: bool = False
    """Whether the input is a price, which must be above 0."""

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> "CoreSchema":
        from pydantic_core import core_schema as schemas  # noqa: PLC0415 - only where a file is read

        figure = number(low=self.low, high=self.high).core_schema()
        keys = {key: schemas.typed_dict_field(figure, required=key == "value") for key in ("value", "low", "high")}
        keys["source"] = schemas.typed_dict_field(schemas.str_schema(min_length=1), required=False)
        table = schemas.typed_dict_schema(keys, extra_behavior="forbid")
        return schemas.no_info_after_validator_function(
            self._make,
            schemas.no_info_before_validator_function(_as_table, table),
            metadata={VALUE_TYPE: source},
        )

    def _make(self, found: Mapping[str, Any]) -> Input:
        value = found["value"]
        span = (found.get("low", value), found.get("high", value))
        made = exact_or_ranged(value, self.unit, source=found.get("source"), span=span)
        if self.price and made.low <= 0:
            raise UsageError("a price must be above 0")
        return made

    def __get_pydantic_json_schema__(self, schema: object, handler: Any) -> dict[str, object]:  # noqa: ANN401 - pydantic's
        if (of_result := result_schema(schema, handler)) is not None:
            return of_result
        figure = {"type": ["number", "string"]}
        keys = {"value": figure, "low": figure, "high": figure, "source": {"type": "string"}}
        table = {"type": "object", "properties": keys, "required": ["value"], "additionalProperties": False}
        return {"oneOf": [figure, table]}


def _as_table(raw: object) -> object:
    return {"value": raw} if isinstance(raw, str) else raw


def input_of_file(usual: Input, *, low: float = 0.0, high: float = inf) -> Stated:
    """Return the annotation of an input that has a default."""
    return Stated(usual.unit, low=low, high=high)
