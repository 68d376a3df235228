"""Claims with known answers, made of catalog, fits and measurements: each can be made true, or false by a factor."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import cache
from itertools import pairwise

from audits import library
from penstock.audit.checks.fit_check import attempt_fit
from penstock.audit.claims.amount import exactly
from penstock.audit.claims.claim import Claim, Said, Statement
from penstock.audit.claims.hardware_claims import (
    FORMATS_OF_FLOPS,
    MEASURES,
    LimitStatement,
    RatioStatement,
    SpecStatement,
)
from penstock.audit.claims.memory_claims import FitStatement, SizeStatement
from penstock.audit.claims.price_claims import CostStatement, PriceStatement
from penstock.audit.claims.record_claims import (
    ChangeStatement,
    ClaimedSpan,
    DateStatement,
    FactStatement,
    FollowsStatement,
    MentionStatement,
    RunsStatement,
)
from penstock.audit.claims.speed_claims import Metric, ServedSetup, SpeedRatioStatement, SpeedStatement
from penstock.audit.evidence.data_sheet import spec_readings
from penstock.audit.evidence.published_rows import figure_of
from penstock.audit.judge_claims import judge
from penstock.audit.judgement import Verdict
from penstock.audit.reference_library import Library
from penstock.audit.saving_claim import SavingClaim, check_claim
from penstock.catalog import load_accelerators, load_measurements, load_prices, priced_ids
from penstock.catalog.accelerator import Basis
from penstock.catalog.measurement import Measurement
from penstock.model import CacheDtype
from penstock.model.model_spec import model_as_measured
from penstock.performance.calibration.measured_runs import setup_of

FACTORS = (1.05, 1.1, 1.2, 1.3, 1.5, 2.0, 3.0, 5.0, 10.0)
SEED = 17
DENSE = ("llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b", "qwen3-32b", "mixtral-8x7b", "gpt-oss-120b", "phi-4")
ACCELERATORS = ("h100", "h200", "b200", "mi300x", "mi325x", "mi355x", "l40s")
BOTH_WAYS = {"spec", "ratio", "size", "speed", "faster", "price", "cost", "follows", "saving", "fact", "change"}


@dataclass(frozen=True)
class Planted:
    """A statement that can be made false by a factor; 1 makes it true."""

    kind: str
    make: Callable[[float], Statement]
    said_on: date = date(2026, 6, 1)
    without: str = ""
    """A measurement that the audit may not see: the one the claim is made of."""
    only: float | None = None
    """The one factor it can be false by, where the world sets it: how far a model is from fitting."""

    def claim(self, factor: float) -> Claim:
        return Claim(id="planted", statement=self.make(factor), said=Said(said_on=self.said_on))

    def library(self) -> Library:
        return _without(self.without) if self.without else library()


@cache
def _without(ident: str) -> Library:
    whole = library()
    return replace(
        whole,
        measurements_of=lambda accelerator: [row for row in whole.measurements_of(accelerator) if row.id != ident],
    )


def planted() -> list[Planted]:
    """All of them, the same each time."""
    chance = random.Random(SEED)
    makers = (
        _specs,
        _ratios,
        _limits,
        _fits,
        _runs,
        _sizes,
        _requests,
        _speeds,
        _faster,
        _prices,
        _costs,
        _savings,
        _facts,
    )
    return [entry for maker in (*makers, _dates, _mentions, _changes, _follows) for entry in maker(chance)]


def _specs(chance: random.Random) -> Iterator[Planted]:
    known = [
        (accelerator.id, quantity, found[0].value)
        for accelerator in load_accelerators()
        for quantity in MEASURES
        if (found := spec_readings(accelerator, quantity)) and found[0].source.basis is not Basis.UNVERIFIED
    ]
    for accelerator, quantity, value in chance.sample(known, 30):

        def make(
            factor: float, accelerator: str = accelerator, quantity: str = quantity, value: float = value
        ) -> Statement:
            return SpecStatement(
                accelerator=accelerator,
                quantity=quantity,
                amount=exactly(value * factor, MEASURES[quantity]),
                basis="dense" if quantity in FORMATS_OF_FLOPS else "unstated",
            )

        yield Planted("spec", make)


def _ratios(chance: random.Random) -> Iterator[Planted]:
    accelerators = [library().accelerator_of(name) for name in ACCELERATORS]
    for _ in range(25):
        accelerator, other = chance.sample(accelerators, 2)
        quantity = chance.choice(("memory", "bandwidth", "fp8", "fp16", "tdp"))
        ours, theirs = spec_readings(accelerator, quantity), spec_readings(other, quantity)

        def make(
            factor: float,
            names: tuple[str, str, str] = (accelerator.id, other.id, quantity),
            value: float = ours[0].value / theirs[0].value,
        ) -> Statement:
            basis = "dense" if names[2] in FORMATS_OF_FLOPS else "unstated"
            return RatioStatement(
                accelerator=names[0],
                over=names[1],
                quantity=names[2],
                amount=exactly(value * factor, "times"),
                basis=basis,  # type: ignore[arg-type]
            )

        yield Planted("ratio", make)


def _limits(chance: random.Random) -> Iterator[Planted]:
    del chance
    bits = {"fp64": 64, "fp32": 32, "tf32": 19, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "fp6": 6, "fp4": 4}
    for accelerator in load_accelerators():
        tpp = max(rate / 1e12 * bits[kind] for kind, rate in accelerator.dense_flops_per_s.items())
        margin = max(tpp / 4800, 4800 / tpp)

        def make(factor: float, accelerator: str = accelerator.id, *, below: bool = tpp < 4800) -> Statement:
            return LimitStatement(
                accelerator=accelerator, limit="3a090-2023", below=below if factor == 1 else not below
            )

        yield Planted("limit", make, only=margin)


def _fits(chance: random.Random) -> Iterator[Planted]:
    for _ in range(40):
        model, accelerator = chance.choice(DENSE), library().accelerator_of(chance.choice(ACCELERATORS))
        precision, devices = chance.choice(("bf16", "fp8", "int4")), chance.choice((1, 2, 4, 8))
        found = attempt_fit(library().model_of(model), precision, accelerator, devices, 2048)
        if found.fits and not found.certain:
            continue
        margin = found.weight_bytes / found.memory_bytes
        if not found.fits and margin <= 1:
            continue

        def make(
            factor: float,
            where: tuple[str, str, str, int] = (model, accelerator.id, precision, devices),
            *,
            fits: bool = found.fits,
        ) -> Statement:
            return FitStatement(
                model=where[0],
                accelerator=where[1],
                precision=where[2],
                devices=where[3],
                fits=fits if factor == 1 else not fits,
            )

        yield Planted("fits", make, only=max(margin, 1 / margin))


def _runs(chance: random.Random) -> Iterator[Planted]:
    """What was measured runs; what does not fit does not, by the factor it does not fit by."""
    served_by = {
        (row.model, row.accelerator, row.devices, row.engine)
        for row in _online()
        if row.engine in {"vllm", "sglang"} and row.dp == 1 and row.weights in library().model_of(row.model).formats
    }
    for model, accelerator, devices, engine in chance.sample(sorted(served_by), 10):

        def make(factor: float, what: tuple[str, str, int, str] = (model, accelerator, devices, engine)) -> Statement:
            return RunsStatement(model=what[0], accelerator=what[1], devices=what[2], engine=what[3], runs=factor == 1)

        yield Planted("runs", make, only=10.0)


def _sizes(chance: random.Random) -> Iterator[Planted]:
    for _ in range(20):
        model, precision = chance.choice(DENSE), chance.choice(("bf16", "fp8", "int4"))
        spec, sized = library().model_of(model), chance.choice(("weights", "cache", "params"))
        held = model_as_measured(spec, precision)
        tokens = chance.choice((2048, 8192, 32768))
        value = {
            "weights": float(held.weight_bytes),
            "cache": held.cache_bytes_per_token(CacheDtype.BF16) * tokens,
            "params": float(held.total_params),
        }[sized]
        measure = "count" if sized == "params" else "bytes"

        def make(
            factor: float,
            what: tuple[str, str, str, int, str] = (model, precision, sized, tokens, measure),
            value: float = value,
        ) -> Statement:
            return SizeStatement(
                model=what[0],
                precision=what[1],
                sized=what[2],  # type: ignore[arg-type]
                context_tokens=what[3],
                amount=exactly(value * factor, what[4]),
            )

        yield Planted("size", make)


def _requests(chance: random.Random) -> Iterator[Planted]:
    """As many requests as fit says; only more of them is false."""
    made = 0
    while made < 15:
        model, accelerator = chance.choice(DENSE), library().accelerator_of(chance.choice(ACCELERATORS))
        precision, tokens = chance.choice(("bf16", "fp8")), chance.choice((2048, 4096, 8192))
        found = attempt_fit(library().model_of(model), precision, accelerator, 1, tokens)
        capacity = found.best.capacity if found.best is not None and found.fits else None
        if capacity is None or not capacity.cached_requests or capacity.cached_requests < 20:
            continue
        made += 1

        def make(
            factor: float,
            what: tuple[str, str, str, int] = (model, accelerator.id, precision, tokens),
            value: int = capacity.cached_requests,
        ) -> Statement:
            model, accelerator, precision, tokens = what
            setup = ServedSetup(
                model=model, accelerator=accelerator, precision=precision, cache="bf16", input_tokens=tokens
            )
            return SpeedStatement(setup=setup, metric="requests", amount=exactly(value * factor, "count"))

        yield Planted("requests", make)


def served(row: Measurement, *, engine: bool = True) -> ServedSetup:
    """A row's setup, as a claim states it."""
    return ServedSetup(
        model=row.model,
        accelerator=row.accelerator,
        devices=row.devices,
        precision=row.weights,
        cache=row.kv or None,
        engine=row.engine if engine else None,
        concurrency=None if row.concurrency is None else max(1, round(row.concurrency)),
        input_tokens=round(row.input_tokens),
        output_tokens=round(row.output_tokens),
        drafted=bool(row.drafted),
        data_parallel=1 if row.prefill is not None else row.dp,
        expert_parallel=row.ep,
        disaggregated=row.prefill is not None,
    )


def _online() -> list[Measurement]:
    return [row for row in load_measurements() if row.scenario == "online" and row.plain and not row.flag]


def _speeds(chance: random.Random) -> Iterator[Planted]:
    for row in chance.sample(_online(), 40):
        metrics: list[Metric] = ["throughput", "tpot"]
        metric = chance.choice([name for name in metrics if figure_of(row, name) is not None])
        value = figure_of(row, metric) or 0.0

        def make(factor: float, row: Measurement = row, metric: Metric = metric, value: float = value) -> Statement:
            return SpeedStatement(setup=served(row), metric=metric, amount=exactly(value * factor, "s"))

        yield Planted("speed", make, without=row.id)


def _faster(chance: random.Random) -> Iterator[Planted]:
    rows: dict[tuple[object, ...], list[Measurement]] = {}
    for row in _online():
        if row.output_tokens_per_s is not None and row.source == "inferencex-cells":
            load = (row.model, row.weights, row.engine, row.devices, row.dp, row.concurrency, row.input_tokens)
            rows.setdefault(load, []).append(row)
    pairs = [
        (found[0], other) for found in rows.values() for other in found if other.accelerator != found[0].accelerator
    ]
    for row, other in chance.sample(pairs, 10):
        value = (row.output_tokens_per_s or 0.0) / (other.output_tokens_per_s or 1.0)

        def make(
            factor: float, both: tuple[Measurement, Measurement] = (row, other), value: float = value
        ) -> Statement:
            return SpeedRatioStatement(
                setup=served(both[0]), over=served(both[1]), amount=exactly(value * factor, "times")
            )

        yield Planted("faster", make)


def _prices(chance: random.Random) -> Iterator[Planted]:
    offers = [
        (accelerator, price)
        for accelerator in priced_ids()
        for price in load_prices(accelerator)
        if price.usable and price.kind in {"rent_on_demand", "purchase_device"}
    ]
    for accelerator, price in chance.sample(offers, 10):

        def make(
            factor: float,
            accelerator: str = accelerator,
            usd: float = price.usd_per_device,
            *,
            bought: bool = not price.hourly,
        ) -> Statement:
            return PriceStatement(accelerator=accelerator, bought=bought, amount=exactly(usd * factor, "usd"))

        yield Planted("price", make, said_on=price.effective_from)


def _costs(chance: random.Random) -> Iterator[Planted]:
    for _ in range(15):
        usd, rate = chance.uniform(2, 60), chance.uniform(500, 20_000)

        def make(factor: float, usd: float = usd, rate: float = rate) -> Statement:
            return CostStatement(
                usd_per_hour=usd, tokens_per_s=rate, amount=exactly(usd / rate / 3600 * 1e6 * factor, "usd/Mtok")
            )

        yield Planted("cost", make)


def _savings(chance: random.Random) -> Iterator[Planted]:
    for _ in range(10):
        empty = SavingClaim(
            title="planted",
            cheaper="a",
            dearer="b",
            devices=chance.randrange(64, 2000),
            cheaper_usd=chance.uniform(12_000, 24_000),
            dearer_usd=chance.uniform(28_000, 45_000),
            discount_fraction=chance.uniform(0, 0.25),
            cheaper_watts=chance.uniform(600, 1000),
            dearer_watts=700,
            hardware_fraction=chance.uniform(0.4, 0.8),
            years=3,
            engineers=chance.randrange(1, 6),
            engineer_usd_per_year=250_000,
            claimed_fraction=0.5,
            claimed_with_engineers_fraction=0.5,
            cheaper_throughput_fraction=None,
        )
        own = check_claim(empty).readings[0]

        def make(
            factor: float,
            empty: SavingClaim = empty,
            first: float = own.saving_fraction,
            second: float = own.with_engineers_fraction,
        ) -> Statement:
            # A bill that is a factor too small: the saving that would go with it.
            return replace(
                empty,
                claimed_fraction=1 - (1 - first) / factor,
                claimed_with_engineers_fraction=1 - (1 - second) / factor,
            )

        yield Planted("saving", make)


def _facts(chance: random.Random) -> Iterator[Planted]:
    del chance
    for fact in library().facts.facts:
        if fact.low is not None:
            value = (fact.low + (fact.high or fact.low)) / 2

            def make(
                factor: float, names: tuple[str, str] = (fact.subject, fact.about), value: float = value
            ) -> Statement:
                return FactStatement(subject=names[0], about=names[1], says=exactly(value * factor))

            yield Planted("fact", make)
        if fact.holds is not None:

            def flip(
                factor: float, names: tuple[str, str] = (fact.subject, fact.about), *, holds: bool = fact.holds
            ) -> Statement:
                return FactStatement(subject=names[0], about=names[1], says=holds if factor == 1 else not holds)

            yield Planted("fact", flip, only=10.0)


def _dates(chance: random.Random) -> Iterator[Planted]:
    """Years too early or too late; a factor has no meaning for a date, so that it counts as ten."""
    dated = [fact for fact in library().facts.facts if fact.first is not None]
    for fact in dated:
        shift = chance.choice((-365, 365)) * chance.choice((1, 2))

        def make(
            factor: float,
            names: tuple[str, str] = (fact.subject, fact.about),
            day: date = fact.first or date.max,
            shift: int = shift,
        ) -> Statement:
            moved = day if factor == 1 else day + timedelta(days=shift)
            return DateStatement(
                subject=names[0], event=names[1], when=ClaimedSpan(first=moved, last=moved, written=f"{moved}")
            )

        yield Planted("date", make, said_on=date(2030, 1, 1), only=10.0)


def _mentions(chance: random.Random) -> Iterator[Planted]:
    """A text before the thing it speaks of is false, whatever it says; the factor is again ten."""
    del chance
    book = library().facts
    for subject in sorted({fact.subject for fact in book.facts if fact.first is not None}):
        first = book.earliest(subject)
        day = first.first if first is not None else None
        if day is None:
            continue
        for said_on in (day + timedelta(days=30), day - timedelta(days=30)):
            late = said_on >= day

            def make(factor: float, subject: str = subject) -> Statement:
                del factor
                return MentionStatement(subject=subject)

            yield Planted("mention", make, said_on=said_on, only=1.0 if late else 10.0)


def _changes(chance: random.Random) -> Iterator[Planted]:
    cells: dict[tuple[object, ...], list[Measurement]] = {}
    for row in _online():
        if row.dated == "day":
            cells.setdefault((*setup_of(row), row.concurrency, row.input_tokens, row.output_tokens), []).append(row)
    twice = [sorted(rows, key=lambda row: row.date) for rows in cells.values() if len({row.date for row in rows}) > 1]
    for rows in chance.sample(twice, 5):
        first, last = rows[0], rows[-1]
        value = (figure_of(last, "throughput") or 1.0) / (figure_of(first, "throughput") or 1.0)

        def make(
            factor: float, ends: tuple[Measurement, Measurement] = (first, last), value: float = value
        ) -> Statement:
            return ChangeStatement(
                accelerator=ends[0].accelerator,
                engine=ends[0].engine,
                model=ends[0].model,
                since=ends[0].date,
                until=ends[1].date,
                amount=exactly(value * factor, "times"),
            )

        yield Planted("change", make)


def _follows(chance: random.Random) -> Iterator[Planted]:
    for _ in range(20):
        a, b = chance.uniform(1, 1000), chance.uniform(1, 1000)
        formula, value = chance.choice([("a / b", a / b), ("a * b", a * b), ("a + b", a + b)])

        def make(factor: float, made: tuple[float, float, str, float] = (a, b, formula, value)) -> Statement:
            return FollowsStatement(
                inputs=(("a", made[0]), ("b", made[1])), formula=made[2], amount=exactly(made[3] * factor)
            )

        yield Planted("follows", make)


@dataclass(frozen=True)
class Outcome:
    """One planted claim judged: by how much it is false, and what was said."""

    kind: str
    factor: float
    verdict: Verdict
    reason: str


@cache
def true_outcomes() -> tuple[Outcome, ...]:
    """Every planted claim as it is true."""
    found = []
    for entry in planted():
        if entry.kind != "mention" or entry.only == 1:
            judged = judge(entry.claim(1.0), entry.library())
            found.append(Outcome(entry.kind, 1.0, judged.verdict, judged.reason))
    return tuple(found)


@cache
def false_outcomes() -> tuple[Outcome, ...]:
    """Every planted claim made false by every factor, too much and too little where both can be."""
    found = []
    for entry in planted():
        for factor in _factors(entry):
            judged = judge(entry.claim(factor), entry.library())
            found.append(Outcome(entry.kind, max(factor, 1 / factor), judged.verdict, judged.reason))
    return tuple(found)


def _factors(entry: Planted) -> list[float]:
    if entry.only is not None:
        return [entry.only] if entry.only > 1 else []
    return [each for factor in FACTORS for each in ((factor, 1 / factor) if entry.kind in BOTH_WAYS else (factor,))]


def missed(outcomes: tuple[Outcome, ...], kind: str | None = None) -> dict[float, tuple[int, int]]:
    """Count what was missed and what there was, by factor: each claim at the largest factor it reaches."""
    counts: dict[float, tuple[int, int]] = {}
    for factor, beyond in pairwise((*FACTORS, float("inf"))):
        here = [
            outcome
            for outcome in outcomes
            if factor <= outcome.factor * (1 + 1e-9)
            and outcome.factor * (1 + 1e-9) < beyond
            and kind in {None, outcome.kind}
        ]
        counts[factor] = sum(not outcome.verdict.caught for outcome in here), len(here)
    return counts
