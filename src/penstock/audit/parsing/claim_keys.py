"""Keys of claims, defined in one table. The parser uses this table, and the editor schema is generated from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.audit.claims.amount import Amount, parse_amount
from penstock.audit.claims.speed_claims import Metric, ServedSetup, SpeedStatement
from penstock.audit.evidence.weight_formats import PRECISIONS, precision_name
from penstock.audit.parsing.claim_terms import accelerator_name, counted_accelerator, engine_name, model_name, variants
from penstock.errors import UsageError
from penstock.model.cache_dtypes import cache_dtype
from penstock.reading.scalars import FLAG, TOKENS, Parsed, choice, number, whole

if TYPE_CHECKING:
    from pydantic_core import CoreSchema

Schema = dict[str, Any]
_TEXT: Final[Schema] = {"type": "string"}
TEXT: Final = Parsed(str, _TEXT)


@dataclass(frozen=True, slots=True)
class NamedNumbers:
    """Parser of named numbers, to which formulas refer by name."""

    def core_schema(self) -> "CoreSchema":
        """Return the pydantic schema that parses the named numbers."""
        from pydantic_core import core_schema as schemas  # noqa: PLC0415 - only where a file is read

        table = schemas.dict_schema(schemas.str_schema(), number(low=-1e15, high=1e15).core_schema())
        return schemas.no_info_after_validator_function(_formula_inputs, table)

    @property
    def schema(self) -> Schema:
        """JSON schema of the named numbers, for editors."""
        return {"type": "object", "additionalProperties": {"type": ["number", "string"]}}


def _formula_inputs(found: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    wrong = [name for name in found if not name.isidentifier()]
    if wrong:
        raise UsageError(f"'{wrong[0][:40]}' cannot be a name in a formula; name inputs with letters, as in h100_gb")
    return tuple(found.items())


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a claim, with the parser of its value. `needed` says whether the key is required."""

    name: str
    read: Parsed | NamedNumbers
    needed: bool = False


def amount(*measures: str) -> Parsed:
    """Return a parser of a figure with a unit.

    If measures are given, the figure must be in a unit of one of these measures.
    """
    words = "a figure with its unit: 192 GB, ~15-20 tok/s, 31%"
    return Parsed(lambda text: parse_amount(text, *measures), {"type": ["number", "string"], "description": words})


def _says(text: str) -> bool | str | Amount:
    """Parse the value of a fact. The value is yes or no, a figure with a unit, or text."""
    if text.lower() in {"true", "yes"}:
        return True
    if text.lower() in {"false", "no"}:
        return False
    try:
        return parse_amount(text)
    except UsageError:
        return text


ACCELERATOR: Final = Key("accelerator", Parsed(accelerator_name, _TEXT), needed=True)
NAMED_ACCELERATOR: Final = Key(
    "accelerator", Parsed(lambda text: (accelerator_name(text), variants(text)), _TEXT), needed=True
)
OVER: Final = Key("over", ACCELERATOR.read, needed=True)
MODEL: Final = Key("model", Parsed(model_name, _TEXT), needed=True)
HARDWARE: Final = Key("hardware", Parsed(counted_accelerator, {**_TEXT, "description": "2x mi300x"}), needed=True)
SAYS: Final = Key("says", Parsed(_says, {}), needed=True)
PRECISION: Final = Key("precision", Parsed(precision_name, {"enum": list(PRECISIONS)}))
CONTEXT: Final = Key("context", TOKENS)
BASIS: Final = Key("basis", choice("dense", "sparse"))
SCOPE: Final = Key("scope", choice("device", "node", "rack", "unit"))
BOUGHT: Final = Key("paid_for", choice("purchase", "rent"), needed=True)
ENGINE: Final = Key("engine", Parsed(engine_name, _TEXT))
LOAD: Final = (
    PRECISION,
    Key("kv", Parsed(lambda text: cache_dtype(text).value, {"enum": ["bf16", "fp16", "fp8"]})),
    ENGINE,
    Key("concurrency", whole(low=1, high=10**6)),
    Key("input", TOKENS),
    Key("output", TOKENS),
    Key("drafts", FLAG),
    Key("replicas", whole(low=1, high=4096)),
    Key("dp", whole(low=1, high=4096)),
    Key("ep", FLAG),
    Key("disaggregated", FLAG),
)
_RATES: Final = ("tokens/s", "tokens/s/device", "tokens/s/user")
METRICS: Final[Mapping[str, tuple[str, ...]]] = {
    "throughput": _RATES,
    "tpot": ("s", "tokens/s/user"),
    "ttft": ("s",),
    "requests": ("count", "number"),
}


def figure(*measures: str, name: str = "figure") -> Key:
    """Return the required key that holds the claimed figure."""
    return Key(name, amount(*measures), needed=True)


def served_setup(found: Mapping[str, Any], on: tuple[str, int]) -> ServedSetup:
    """Build the setup from parsed keys. A missing key means that the claim does not state the property."""
    part, devices = on
    replicas, dp = found.get("replicas", 1), found.get("dp", 1)
    if devices % replicas or devices // replicas % dp:
        raise UsageError(
            f"{devices} devices cannot be divided into {replicas} replicas of {dp} data parallel ranks; "
            "change one of these numbers"
        )
    return ServedSetup(
        model=found["model"],
        accelerator=part,
        devices=devices,
        precision=found.get("precision"),
        cache=found.get("kv"),
        engine=found.get("engine"),
        concurrency=found.get("concurrency"),
        input_tokens=found.get("input"),
        output_tokens=found.get("output"),
        drafted=found.get("drafts"),
        replicas=replicas,
        data_parallel=dp,
        expert_parallel=bool(found.get("ep")),
        disaggregated=bool(found.get("disaggregated")),
    )


def speed_statement(setup: ServedSetup, metric: Metric, amount: Amount) -> SpeedStatement:
    """Build a speed statement.

    A rate per device becomes the rate of the setup. A rate per user becomes the time per output token.
    """
    if amount.measure not in METRICS[metric]:
        raise UsageError(f"'{amount.written}' is not a {metric}; write {_example(metric)}")
    if amount.measure == "tokens/s/device":
        return SpeedStatement(setup=setup, metric="throughput", amount=amount.scaled(setup.devices))
    if amount.measure == "tokens/s/user":
        if not amount.low:
            raise UsageError(f"'{amount.written}': a rate per user must be above 0")
        turned = Amount(
            low=1 / amount.high,
            high=1 / amount.low,
            measure="s",
            written=amount.written,
            rounding=amount.rounding / amount.low**2,
            about=amount.about,
            at_least=amount.at_most,
            at_most=amount.at_least,
        )
        return SpeedStatement(setup=setup, metric="tpot", amount=turned)
    return SpeedStatement(setup=setup, metric=metric, amount=amount)


def _example(metric: Metric) -> str:
    return {"throughput": "2,800 tok/s", "tpot": "25 ms", "ttft": "400 ms", "requests": "512 requests"}[metric]
