"""Kinds of claims: the keys of each and the constructor of its statement."""

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
    BASIS,
    BOUGHT,
    CONTEXT,
    ENGINE,
    HARDWARE,
    LOAD,
    METRICS,
    MODEL,
    NAMED_PART,
    NUMBER,
    OVER,
    PART,
    PRECISION,
    SCOPE,
    TEXT,
    WHOLE,
    YES,
    Key,
    choice,
    figure,
    inputs,
    says,
    served_setup,
    speed_statement,
    text,
)
from penstock.audit.parsing.claim_terms import counted_part, engine_name, span
from penstock.audit.saving_claim import SavingClaim
from penstock.errors import UsageError
from penstock.fleet import Release
from penstock.reading.yaml import Table

if TYPE_CHECKING:
    from penstock.audit.claims.amount import Amount


@dataclass(frozen=True, slots=True)
class ClaimKind:
    """A kind of claim: its description, its keys, and the constructor of its statement."""

    words: str
    keys: tuple[Key, ...]
    make: Callable[[Mapping[str, Any]], Statement]


def read_kind(table: Table, kind: ClaimKind) -> Callable[[], Statement]:
    """Parse the keys of a kind, reject others, and return a function that builds the statement."""
    table.only(*(key.name for key in kind.keys))
    found: dict[str, Any] = {}
    for key in kind.keys:
        value = table.required(key.name) if key.needed else table.get(key.name)
        if value is not None:
            found[key.name] = key.read(value)
    return lambda: kind.make(found)


def _spec(found: Mapping[str, Any]) -> Statement:
    _measured_in(found)
    part, named_so = found["part"]
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
        raise UsageError(f"{found['quantity']} is measured in {measure}, and '{amount.written}' is in {amount.measure}")


def _ratio(found: Mapping[str, Any]) -> Statement:
    amount: Amount = found["figure"]
    if amount.measure == "share":
        raise UsageError(f"'{amount.written}': write a ratio, such as {1 + amount.low:g}x for so much more")
    return RatioStatement(
        accelerator=found["part"],
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
        raise UsageError(f"preflight knows no {name}; write {' or '.join(_PREFLIGHT)}")
    return name


def _release(written: str) -> str:
    return Release(written).text


def _size(found: Mapping[str, Any]) -> Statement:
    part, devices = found.get("hardware", (None, 1))
    if found["of"] == "left" and part is None:
        raise UsageError("what is left depends on the devices; add `hardware: 1x mi300x`")
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
        raise UsageError(f"'{amount.written}' of what? add `metric: tpot` or `metric: ttft`")
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
        accelerator=found["part"],
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


def _saving(found: Mapping[str, Any]) -> SavingClaim:
    return SavingClaim(
        title=found["title"],
        cheaper=found["cheaper"],
        dearer=found["dearer"],
        devices=found["devices"],
        cheaper_usd=found["cheaper_usd"],
        dearer_usd=found["dearer_usd"],
        discount_fraction=found["discount"],
        cheaper_watts=found["cheaper_watts"],
        dearer_watts=found["dearer_watts"],
        hardware_fraction=found["hardware_share"],
        years=found["years"],
        engineers=found["engineers"],
        engineer_usd_per_year=found["engineer_usd_per_year"],
        claimed_fraction=found["claimed"],
        claimed_with_engineers_fraction=found["claimed_with_engineers"],
        cheaper_throughput_fraction=found.get("throughput_ratio"),
    )


def read_saving(table: Table) -> SavingClaim:
    """Parse a saving claim with its inputs, as in claims and plans."""
    statement = read_kind(table, KINDS["saving"])()
    if not isinstance(statement, SavingClaim):
        raise TypeError(statement)
    return statement


def _amount(name: str, *, low: float = 0.0, high: float = 1e12, needed: bool = True) -> Key:
    return Key(name, lambda value: value.number(low=low, high=high), NUMBER, needed)


def _day(name: str) -> Key:
    return Key(name, lambda value: value.date(), TEXT)


_PREFLIGHT: Final = ("vllm", "sglang")
_QUANTITY: Final = choice("quantity", *QUANTITIES, needed=True)
_PLACED: Final = Key("hardware", HARDWARE.read, HARDWARE.shape)
_OTHER: Final = Key("over", lambda value: value.parsed(counted_part), TEXT, needed=True)
_SUBJECT: Final = Key("subject", text, TEXT, needed=True)

KINDS: Final[Mapping[str, ClaimKind]] = {
    "spec": ClaimKind(
        "a figure of a data sheet",
        (NAMED_PART, _QUANTITY, figure(), BASIS, SCOPE, Key("sustained", lambda value: value.flag(), YES)),
        _spec,
    ),
    "ratio": ClaimKind(
        "one part's figure over another's",
        (PART, OVER, _QUANTITY, figure("times", "number"), choice("over_quantity", *QUANTITIES), BASIS, SCOPE),
        _ratio,
    ),
    "limit": ClaimKind(
        "a part below or above a threshold of a rule",
        (PART, Key("rule", text, TEXT, needed=True), choice("side", "below", "above", needed=True)),
        lambda found: LimitStatement(accelerator=found["part"], limit=found["rule"], below=found["side"] == "below"),
    ),
    "fits": ClaimKind(
        "a model fits on devices, or does not, or takes so many at least",
        (
            MODEL,
            HARDWARE,
            PRECISION,
            CONTEXT,
            Key("fits", lambda value: value.flag(), YES),
            Key("fewest", figure("count", "number").read, figure().shape),
        ),
        _fits,
    ),
    "runs": ClaimKind(
        "a checkpoint runs rightly on devices with an engine, or does not",
        (
            MODEL,
            HARDWARE,
            Key("engine", lambda value: value.parsed(_served_engine), ENGINE.shape),
            Key("version", lambda value: value.parsed(_release), TEXT),
            Key("runs", lambda value: value.flag(), YES),
        ),
        _runs,
    ),
    "size": ClaimKind(
        "bytes of weights or cache, what is left beside them, or parameters",
        (
            MODEL,
            choice("of", "weights", "cache", "left", "params", needed=True),
            figure("bytes", "count", "number"),
            PRECISION,
            _PLACED,
            CONTEXT,
            Key("requests", lambda value: value.whole(low=1, high=10**6), WHOLE),
        ),
        _size,
    ),
    "speed": ClaimKind(
        "a rate, a time or a number of requests of one setup",
        (MODEL, HARDWARE, figure(), choice("metric", *METRICS), *LOAD),
        _speed,
    ),
    "faster": ClaimKind(
        "one setup's rate over another's under the same load",
        (MODEL, HARDWARE, _OTHER, figure("times", "number"), *LOAD),
        _faster,
    ),
    "price": ClaimKind(
        "what one device costs",
        (PART, BOUGHT, figure("usd", "usd/h", "number")),
        lambda found: PriceStatement(
            accelerator=found["part"], bought=found["paid_for"] == "purchase", amount=found["figure"]
        ),
    ),
    "cheaper": ClaimKind(
        "how much less one device costs than another",
        (PART, OVER, BOUGHT, figure("share")),
        lambda found: PriceRatioStatement(
            accelerator=found["part"],
            over=found["over"],
            bought=found["paid_for"] == "purchase",
            amount=found["figure"],
        ),
    ),
    "cost": ClaimKind(
        "dollars per million tokens with the rent and the rate they come from",
        (
            _amount("usd_per_hour", low=1e-6),
            _amount("tokens_per_s", low=1e-6),
            figure("usd/Mtok", "usd"),
            _amount("utilisation", low=0.001, high=1, needed=False),
        ),
        _cost,
    ),
    "saving": ClaimKind(
        "a saving with its inputs: prices, watts, the share of hardware, engineers",
        (
            Key("title", text, TEXT, needed=True),
            Key("cheaper", text, TEXT, needed=True),
            Key("dearer", text, TEXT, needed=True),
            Key("devices", lambda value: value.whole(low=1), WHOLE, needed=True),
            _amount("cheaper_usd", low=1),
            _amount("dearer_usd", low=1),
            _amount("discount", high=0.99),
            _amount("cheaper_watts", low=1),
            _amount("dearer_watts", low=1),
            _amount("hardware_share", low=0.01, high=0.99),
            _amount("years", low=0.1, high=30),
            _amount("engineers"),
            _amount("engineer_usd_per_year", low=1),
            _amount("claimed", high=0.99),
            _amount("claimed_with_engineers", high=0.99),
            _amount("throughput_ratio", low=0.01, high=100, needed=False),
        ),
        _saving,
    ),
    "fact": ClaimKind(
        "something holds, is called so or was reported",
        (_SUBJECT, Key("about", text, TEXT, needed=True), Key("says", says, {}, needed=True)),
        lambda found: FactStatement(subject=found["subject"], about=found["about"], says=found["says"]),
    ),
    "date": ClaimKind(
        "something happened, or will happen, then",
        (
            _SUBJECT,
            Key("event", text, TEXT, needed=True),
            Key("when", lambda value: value.parsed(span), TEXT, needed=True),
        ),
        lambda found: DateStatement(subject=found["subject"], event=found["event"], when=found["when"]),
    ),
    "mention": ClaimKind(
        "a text speaks of a product as there", (_SUBJECT,), lambda found: MentionStatement(subject=found["subject"])
    ),
    "change": ClaimKind(
        "a stack became so much faster between two days",
        (
            PART,
            figure("times", "number"),
            ENGINE,
            Key("model", MODEL.read, TEXT),
            _day("since"),
            _day("until"),
        ),
        _change,
    ),
    "follows": ClaimKind(
        "a figure computed from others the same text states",
        (
            Key("inputs", inputs, {"type": "object", "additionalProperties": NUMBER}, needed=True),
            Key("formula", text, TEXT, needed=True),
            figure(),
        ),
        _follows,
    ),
    "unknown": ClaimKind(
        "a figure nothing here can check",
        (figure(), Key("needs", text, TEXT, needed=True)),
        lambda found: UncheckableStatement(amount=found["figure"], needs=found["needs"]),
    ),
}
