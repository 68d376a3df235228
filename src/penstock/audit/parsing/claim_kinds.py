"""Kinds of claims. Each kind of claim has keys and a constructor of its statement."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.audit.arithmetic import evaluate
from penstock.audit.claims.claim import Statement
from penstock.audit.claims.hardware_claims import MEASURES, QUANTITIES, LimitStatement, RatioStatement, SpecStatement
from penstock.audit.claims.memory_claims import FitStatement, SizeStatement
from penstock.audit.claims.price_claims import CostStatement, PriceRatioStatement, PriceStatement
from penstock.audit.claims.record_claims import (
    ChangeStatement,
    DateStatement,
    FactStatement,
    FollowsStatement,
    MentionStatement,
    RunsStatement,
    UncheckableStatement,
)
from penstock.audit.claims.speed_claims import Metric, SpeedRatioStatement
from penstock.audit.parsing.claim_keys import (
    ACCELERATOR,
    BASIS,
    BOUGHT,
    CONTEXT,
    ENGINE,
    HARDWARE,
    LOAD,
    METRICS,
    MODEL,
    NAMED_ACCELERATOR,
    OVER,
    PRECISION,
    SAYS,
    SCOPE,
    TEXT,
    Key,
    NamedNumbers,
    amount,
    figure,
    served_setup,
    speed_statement,
)
from penstock.audit.parsing.claim_terms import engine_name, span
from penstock.errors import UsageError
from penstock.fleet import Release
from penstock.reading.scalars import DAY, FLAG, Parsed, choice, number, whole

if TYPE_CHECKING:
    from pydantic_core import CoreSchema

    from penstock.audit.claims.amount import Amount


@dataclass(frozen=True, slots=True, eq=False)
class ClaimKind:
    """A kind of claim: its description, its keys, and the constructor of its statement. It annotates `Statement`."""

    words: str
    keys: tuple[Key, ...]
    make: Callable[[Mapping[str, Any]], Statement]

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> "CoreSchema":
        from pydantic_core import core_schema as schemas  # noqa: PLC0415 - only where a file is read

        fields = {key.name: schemas.typed_dict_field(key.read.core_schema(), required=key.needed) for key in self.keys}
        table = schemas.typed_dict_schema(fields, extra_behavior="forbid")
        return schemas.no_info_after_validator_function(self.make, table)

    def __get_pydantic_json_schema__(self, schema: object, handler: object) -> dict[str, object]:
        return {
            "type": "object",
            "description": self.words,
            "properties": {key.name: dict(key.read.schema) for key in self.keys},
            "required": [key.name for key in self.keys if key.needed],
            "additionalProperties": False,
        }


def _spec(found: Mapping[str, Any]) -> Statement:
    _measured_in(found)
    part, named_so = found["accelerator"]
    return SpecStatement(
        accelerator=part,
        quantity=found["quantity"],
        amount=found["figure"],
        basis=found.get("basis", "unstated"),
        scope=found.get("scope", "device"),
        sustained=bool(found.get("sustained")),
        variants=named_so,
    )


def _measured_in(found: Mapping[str, Any]) -> None:
    measure, amount = MEASURES[found["quantity"]], found["figure"]
    if amount.measure != measure and not (measure == "count" and amount.measure == "number"):
        raise UsageError(
            f"'{amount.written}' is in {amount.measure}, but {found['quantity']} is measured in "
            f"{measure}; correct the unit"
        )


def _ratio(found: Mapping[str, Any]) -> Statement:
    amount: Amount = found["figure"]
    if amount.measure == "share":
        raise UsageError(
            f"'{amount.written}' is a percentage; write a ratio instead, such as {1 + amount.low:g}x for "
            f"{amount.low:.0%} more"
        )
    return RatioStatement(
        accelerator=found["accelerator"],
        over=found["over"],
        quantity=found["quantity"],
        over_quantity=found.get("over_quantity"),
        amount=amount,
        basis=found.get("basis", "unstated"),
        scope=found.get("scope", "device"),
    )


def _fits(found: Mapping[str, Any]) -> Statement:
    part, devices = found["hardware"]
    return FitStatement(
        model=found["model"],
        accelerator=part,
        devices=devices,
        fits=found.get("fits", True),
        precision=found.get("precision"),
        context_tokens=found.get("context"),
        fewest=found.get("fewest"),
    )


def _runs(found: Mapping[str, Any]) -> Statement:
    part, devices = found["hardware"]
    return RunsStatement(
        model=found["model"],
        accelerator=part,
        devices=devices,
        engine=found.get("engine", "vllm"),
        version=found.get("version"),
        runs=found.get("runs", True),
    )


def _served_engine(written: str) -> str:
    name = engine_name(written)
    if name not in _PREFLIGHT:
        raise UsageError(f"preflight does not support the engine {name}; write {' or '.join(_PREFLIGHT)}")
    return name


def _release(written: str) -> str:
    return Release(written).text


def _size(found: Mapping[str, Any]) -> Statement:
    part, devices = found.get("hardware", (None, 1))
    if found["of"] == "left" and part is None:
        raise UsageError("a claim about the memory left needs the devices; add `hardware: 1x mi300x`, for example")
    return SizeStatement(
        model=found["model"],
        sized=found["of"],
        amount=found["figure"],
        precision=found.get("precision"),
        accelerator=part,
        devices=devices,
        context_tokens=found.get("context"),
        requests=found.get("requests", 1),
    )


def _speed(found: Mapping[str, Any]) -> Statement:
    amount = found["figure"]
    metric: Metric = found.get("metric") or ("requests" if amount.measure == "count" else "throughput")
    if amount.measure == "s" and metric == "throughput":
        raise UsageError(
            f"'{amount.written}' may be a time per output token or a time to first token; add `metric: "
            "tpot` or `metric: ttft`"
        )
    return speed_statement(served_setup(found, found["hardware"]), metric, amount)


def _faster(found: Mapping[str, Any]) -> Statement:
    return SpeedRatioStatement(
        setup=served_setup(found, found["hardware"]), over=served_setup(found, found["over"]), amount=found["figure"]
    )


def _cost(found: Mapping[str, Any]) -> Statement:
    return CostStatement(
        usd_per_hour=found["usd_per_hour"],
        tokens_per_s=found["tokens_per_s"],
        amount=found["figure"],
        utilisation=found.get("utilisation", 1.0),
    )


def _change(found: Mapping[str, Any]) -> Statement:
    return ChangeStatement(
        accelerator=found["accelerator"],
        amount=found["figure"],
        engine=found.get("engine"),
        model=found.get("model"),
        since=found.get("since"),
        until=found.get("until"),
    )


def _follows(found: Mapping[str, Any]) -> Statement:
    statement = FollowsStatement(inputs=found["inputs"], formula=found["formula"], amount=found["figure"])
    evaluate(statement.formula, dict(statement.inputs))
    return statement


_PREFLIGHT: Final = ("vllm", "sglang")
_QUANTITY: Final = Key("quantity", choice(*QUANTITIES), needed=True)
_PLACED: Final = Key("hardware", HARDWARE.read)
_OTHER: Final = Key("over", HARDWARE.read, needed=True)
_SUBJECT: Final = Key("subject", TEXT, needed=True)

KINDS: Final[Mapping[str, ClaimKind]] = {
    "spec": ClaimKind(
        "a figure of a data sheet",
        (NAMED_ACCELERATOR, _QUANTITY, figure(), BASIS, SCOPE, Key("sustained", FLAG)),
        _spec,
    ),
    "ratio": ClaimKind(
        "the ratio of one accelerator's figure to another's",
        (
            ACCELERATOR,
            OVER,
            _QUANTITY,
            figure("times", "number"),
            Key("over_quantity", choice(*QUANTITIES)),
            BASIS,
            SCOPE,
        ),
        _ratio,
    ),
    "limit": ClaimKind(
        "an accelerator below or above a threshold of a rule",
        (ACCELERATOR, Key("rule", TEXT, needed=True), Key("side", choice("below", "above"), needed=True)),
        lambda found: LimitStatement(
            accelerator=found["accelerator"], limit=found["rule"], below=found["side"] == "below"
        ),
    ),
    "fits": ClaimKind(
        "a model fits on devices, or does not, or needs at least a number of devices",
        (
            MODEL,
            HARDWARE,
            PRECISION,
            CONTEXT,
            Key("fits", FLAG),
            Key("fewest", amount("count", "number")),
        ),
        _fits,
    ),
    "runs": ClaimKind(
        "a checkpoint runs correctly on devices with an engine, or does not",
        (
            MODEL,
            HARDWARE,
            Key("engine", Parsed(_served_engine, {"type": "string"})),
            Key("version", Parsed(_release, {"type": ["string", "number"]})),
            Key("runs", FLAG),
        ),
        _runs,
    ),
    "size": ClaimKind(
        "bytes of weights or cache, the memory left after them, or parameters",
        (
            MODEL,
            Key("of", choice("weights", "cache", "left", "params"), needed=True),
            figure("bytes", "count", "number"),
            PRECISION,
            _PLACED,
            CONTEXT,
            Key("requests", whole(low=1, high=10**6)),
        ),
        _size,
    ),
    "speed": ClaimKind(
        "a rate, a time or a number of requests of one setup",
        (MODEL, HARDWARE, figure(), Key("metric", choice(*METRICS)), *LOAD),
        _speed,
    ),
    "faster": ClaimKind(
        "one setup's rate over another's under the same load",
        (MODEL, HARDWARE, _OTHER, figure("times", "number"), *LOAD),
        _faster,
    ),
    "price": ClaimKind(
        "what one device costs",
        (ACCELERATOR, BOUGHT, figure("usd", "usd/h", "number")),
        lambda found: PriceStatement(
            accelerator=found["accelerator"], bought=found["paid_for"] == "purchase", amount=found["figure"]
        ),
    ),
    "cheaper": ClaimKind(
        "how much less one device costs than another",
        (ACCELERATOR, OVER, BOUGHT, figure("share")),
        lambda found: PriceRatioStatement(
            accelerator=found["accelerator"],
            over=found["over"],
            bought=found["paid_for"] == "purchase",
            amount=found["figure"],
        ),
    ),
    "cost": ClaimKind(
        "dollars per million tokens with the rent and the rate that give this cost",
        (
            Key("usd_per_hour", number(low=1e-6, high=1e12), needed=True),
            Key("tokens_per_s", number(low=1e-6, high=1e12), needed=True),
            figure("usd/Mtok", "usd"),
            Key("utilisation", number(low=0.001, high=1)),
        ),
        _cost,
    ),
    "fact": ClaimKind(
        "something is true, has a name or was reported",
        (_SUBJECT, Key("about", TEXT, needed=True), SAYS),
        lambda found: FactStatement(subject=found["subject"], about=found["about"], says=found["says"]),
    ),
    "date": ClaimKind(
        "something happened, or will happen, at a stated time",
        (
            _SUBJECT,
            Key("event", TEXT, needed=True),
            Key("when", Parsed(span, {"type": "string"}), needed=True),
        ),
        lambda found: DateStatement(subject=found["subject"], event=found["event"], when=found["when"]),
    ),
    "mention": ClaimKind(
        "a text mentions a product as existing", (_SUBJECT,), lambda found: MentionStatement(subject=found["subject"])
    ),
    "change": ClaimKind(
        "a stack became faster by a factor between two days",
        (
            ACCELERATOR,
            figure("times", "number"),
            ENGINE,
            Key("model", MODEL.read),
            Key("since", DAY),
            Key("until", DAY),
        ),
        _change,
    ),
    "follows": ClaimKind(
        "a figure that a text computes from other figures in it",
        (
            Key("inputs", NamedNumbers(), needed=True),
            Key("formula", TEXT, needed=True),
            figure(),
        ),
        _follows,
    ),
    "unknown": ClaimKind(
        "a figure that no evidence here can check",
        (figure(), Key("needs", TEXT, needed=True)),
        lambda found: UncheckableStatement(amount=found["figure"], needs=found["needs"]),
    ),
}
