"""Keys of a claim: one table that the parser follows and from which the editor schema is generated."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.audit.claims.amount import Amount, parse_amount
from penstock.audit.claims.speed_claims import Metric, ServedSetup, SpeedStatement
from penstock.audit.evidence.weight_formats import PRECISIONS, precision_name
from penstock.audit.parsing.claim_terms import counted_part, engine_name, model_name, part_name, variants
from penstock.errors import UsageError
from penstock.model.cache_dtypes import cache_dtype
from penstock.reading.yaml import Value

Reader = Callable[[Value], Any]
Shape = Mapping[str, object]
TEXT: Final[Shape] = {"type": "string"}
AMOUNT: Final[Shape] = {
    "type": ["number", "string"],
    "description": "a figure with its unit: 192 GB, ~15-20 tok/s, 31%",
}
WHOLE: Final[Shape] = {"type": ["integer", "string"]}
NUMBER: Final[Shape] = {"type": ["number", "string"]}
YES: Final[Shape] = {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a claim: its parser, its JSON schema, and whether it is required."""

    name: str
    read: Reader
    shape: Shape
    needed: bool = False


def text(value: Value) -> str:
    """Parse text."""
    return value.text()


def _amount(*measures: str) -> Reader:
    return lambda value: value.parsed(lambda text: parse_amount(text, *measures))


def _one_of(*words: str) -> Reader:
    return lambda value: value.choice(words)


def choice(name: str, *words: str, needed: bool = False) -> Key:
    """Return a key that takes one of a few words."""
    return Key(name, _one_of(*words), {"enum": list(words)}, needed)


def says(value: Value) -> bool | str | Amount:
    """Parse the value of a fact: yes or no, a figure with a unit, or text."""
    written = value.text()
    if written.lower() in {"true", "yes"}:
        return True
    if written.lower() in {"false", "no"}:
        return False
    try:
        return parse_amount(written)
    except UsageError:
        return written


def inputs(value: Value) -> tuple[tuple[str, float], ...]:
    """Parse the named numbers of a formula."""
    found = tuple((name, entry.number(low=-1e15, high=1e15)) for name, entry in value.table().every())
    wrong = [name for name, _ in found if not name.isidentifier()]
    if wrong:
        value.refuse(f"'{wrong[0][:40]}' cannot stand in a formula; name inputs with letters, as in h100_gb")
    return found


def _kv(value: Value) -> str:
    return value.parsed(lambda text: cache_dtype(text).value if text else "")


PART: Final = Key("part", lambda value: value.parsed(part_name), TEXT, needed=True)
NAMED_PART: Final = Key(
    "part", lambda value: value.parsed(lambda text: (part_name(text), variants(text))), TEXT, needed=True
)
OVER: Final = Key("over", lambda value: value.parsed(part_name), TEXT, needed=True)
MODEL: Final = Key("model", lambda value: value.parsed(model_name), TEXT, needed=True)
HARDWARE: Final = Key(
    "hardware", lambda value: value.parsed(counted_part), {**TEXT, "description": "2x mi300x"}, needed=True
)
PRECISION: Final = Key("precision", lambda value: value.parsed(precision_name), {"enum": list(PRECISIONS)})
CONTEXT: Final = Key("context", lambda value: value.tokens(), WHOLE)
BASIS: Final = choice("basis", "dense", "sparse")
SCOPE: Final = choice("scope", "device", "node", "rack", "unit")
BOUGHT: Final = choice("paid_for", "purchase", "rent", needed=True)
ENGINE: Final = Key("engine", lambda value: value.parsed(engine_name), TEXT)
LOAD: Final = (
    PRECISION,
    Key("kv", _kv, {"enum": ["bf16", "fp16", "fp8"]}),
    ENGINE,
    Key("concurrency", lambda value: value.whole(low=1, high=10**6), WHOLE),
    Key("input", lambda value: value.tokens(), WHOLE),
    Key("output", lambda value: value.tokens(), WHOLE),
    Key("drafts", lambda value: value.flag(), YES),
    Key("replicas", lambda value: value.whole(low=1, high=4096), WHOLE),
    Key("dp", lambda value: value.whole(low=1, high=4096), WHOLE),
    Key("ep", lambda value: value.flag(), YES),
    Key("apart", lambda value: value.flag(), YES),
)
_RATES: Final = ("tokens/s", "tokens/s/device", "tokens/s/user")
METRICS: Final[Mapping[str, tuple[str, ...]]] = {
    "throughput": _RATES,
    "tpot": ("s", "tokens/s/user"),
    "ttft": ("s",),
    "requests": ("count", "number"),
}


def figure(*measures: str, name: str = "figure") -> Key:
    """Return the key of the claimed figure."""
    return Key(name, _amount(*measures), AMOUNT, needed=True)


def served_setup(found: Mapping[str, Any], on: tuple[str, int]) -> ServedSetup:
    """Build the setup from parsed keys; missing keys are not stated."""
    part, devices = on
    replicas, dp = found.get("replicas", 1), found.get("dp", 1)
    if devices % replicas or devices // replicas % dp:
        raise UsageError(f"{devices} devices are not {replicas} replicas of {dp} data parallel ranks")
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
        disaggregated=bool(found.get("apart")),
    )


def speed_statement(setup: ServedSetup, metric: Metric, amount: Amount) -> SpeedStatement:
    """Build a speed statement; rates per device or per user become those of the setup."""
    if amount.measure not in METRICS[metric]:
        raise UsageError(f"'{amount.written}' is no {metric}; write {_example(metric)}")
    if amount.measure == "tokens/s/device":
        return SpeedStatement(setup=setup, metric="throughput", amount=amount.scaled(setup.devices))
    if amount.measure == "tokens/s/user":
        if not amount.low:
            raise UsageError(f"'{amount.written}': nothing is that slow")
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
