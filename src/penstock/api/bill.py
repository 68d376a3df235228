"""Makes an invoice by tenant from the receipts of gateways: `penstock bill`."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from math import fsum, isfinite, nan
from operator import attrgetter
from pathlib import Path
from typing import Final

import numpy as np
from rich.console import RenderableType

from penstock.api.answer import ApiAnswer, Row
from penstock.api.arguments.endpoint_record import endpoint_record
from penstock.api.arguments.fleet_argument import fleet_choice, placed_pool
from penstock.api.options.file_types import AskedFleet
from penstock.billing.answer_tokens import MeteredTokens, TokenScale, token_scale
from penstock.billing.busy_time import busy_seconds
from penstock.billing.charges import RentedTime
from penstock.billing.invoice import (
    IDLE_RULES,
    BilledPool,
    BilledRequest,
    IdleRule,
    Invoice,
    PricePerMtok,
    make_invoice,
)
from penstock.billing.observed_scale import ObservedAnswers, correct_coefficients
from penstock.billing.step_seconds import StepCoefficients, TokenWork, token_work
from penstock.errors import UsageError
from penstock.fleet.pools import Fleet, Pool
from penstock.gateway.picker.decision_receipts import ends_cut, refuse_copies
from penstock.gateway.picker.recorded_outcomes import Meter, ReceiptGap, RecordedTraffic, read_traffic
from penstock.gateway.state.request_outcome import RequestOutcome
from penstock.report.bill import InvoiceDocument, render_bill

_HOUR_S: Final = 3600.0
_BAD: Final = 400
_SERVER_ERROR: Final = 500
_TOO_MANY: Final = 429


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledPeriod:
    """Period of a bill, in seconds since 1970."""

    start_unix_s: float
    end_unix_s: float

    @property
    def seconds(self) -> float:
        """Length of the period."""
        return self.end_unix_s - self.start_unix_s


@dataclass(frozen=True, kw_only=True, repr=False)
class BillAnswer(ApiAnswer):
    """The invoice of a period."""

    document_type = InvoiceDocument
    invoice: Invoice
    period: BilledPeriod
    metered_fraction: float
    """Part of the charged requests whose tokens the engines counted, one by one or in sum."""
    cut_files: tuple[str, ...] = ()
    """Names of files whose last line is incomplete. The incomplete line is left out."""

    @property
    def good(self) -> bool:
        """Return true, because a bill has no verdict."""
        return True

    def rows(self) -> list[Row]:
        """Return one row per tenant."""
        return [
            {
                "tenant": line.tenant,
                "requests": line.requests,
                "refused": line.refused,
                "input_tokens": line.input_tokens,
                "cached_tokens": line.cached_tokens,
                "output_tokens": line.output_tokens,
                "seconds": line.seconds,
                "usd": line.usd,
                "share_fraction": line.share_fraction,
                "kept": line.kept,
                "missed": line.missed,
                "unknown": line.unknown,
                **{f"usd_on_{vendor}": usd for vendor, usd in line.vendor_usd.items()},
                "api_usd": line.api_usd,
            }
            for line in self.invoice.tenants
        ]

    def render(self, columns: int) -> RenderableType:
        """Return what `bill` prints."""
        return render_bill(self.invoice, self.period, self.metered_fraction, self.cut_files, columns)

    def _summary(self) -> tuple[str, Sequence[str]]:
        paid = [f"{line.tenant or 'anonymous'} ${line.usd:,.2f}" for line in self.invoice.tenants]
        return f"${self.invoice.rent_usd:,.2f}", [*paid, f"idle ${self.invoice.idle_usd:,.2f}"]


def bill(
    files: Sequence[str | Path],
    fleet: AskedFleet,
    *,
    idle: str = "separate",
    api_usd_per_mtok: str | tuple[float, float] | None = None,
    start: str | None = None,
    end: str | None = None,
    replica_hours: Mapping[str, float] | None = None,
) -> BillAnswer:
    """Charge tenants for the rent of a fleet, as `penstock bill` does: `bill(["receipts.0.jsonl"], "fleet.yaml")`.

    `start` and `end` are times in ISO 8601, in UTC unless they name an offset. Without them, the period is from the
    first to the last recorded request. `replica_hours` are the rented hours of all replicas of a pool together; other
    pools were rented with all replicas of the fleet file for the whole period.
    """
    rule = _idle_rule(idle)
    api = _api_price(api_usd_per_mtok)
    paths = [Path(path) for path in files]
    refuse_copies(paths)
    chosen = fleet_choice(fleet)
    traffic = read_traffic(paths)
    outcomes, period = _in_period(traffic.outcomes, start, end)
    _refuse_gaps(traffic.gaps, period)
    _check_pools(chosen, outcomes, replica_hours or {})
    charged = [one for one in outcomes if _is_charged(one)]
    models = {pool.name: pool.model for pool in chosen.pools}
    recorded = [one for one in traffic.outcomes if one.pool in models and _is_charged(one)]
    scales = _scales(traffic, recorded, models)
    served = [(one, _billed_request(one, scales).work) for one in recorded]
    pools = [_billed_pool(chosen, pool, charged, served, period, replica_hours or {}) for pool in chosen.pools]
    refused = Counter(
        one.tenant for one in outcomes if one.status == _TOO_MANY or one.status >= _SERVER_ERROR or one.failed
    )
    requests = [_billed_request(one, scales) for one in charged]
    metered = sum(_is_metered(one, scales[one.pool]) for one in charged)
    return BillAnswer(
        invoice=make_invoice(requests, pools, idle=rule, api=api, refused=refused),
        period=period,
        metered_fraction=metered / len(charged) if charged else 0.0,
        cut_files=tuple(path.name for path in paths if ends_cut(path)),
    )


def _idle_rule(idle: str) -> IdleRule:
    for known in IDLE_RULES:
        if idle == known:
            return known
    raise UsageError(f"--idle is '{idle}'; use one of {', '.join(IDLE_RULES)}")


def _api_price(price: str | tuple[float, float] | None) -> PricePerMtok | None:
    if price is None:
        return None
    parts = price.split(",") if isinstance(price, str) else price
    try:
        input_usd, output_usd = (float(part) for part in parts)
    except ValueError:
        input_usd = output_usd = -1.0
    if not (isfinite(input_usd) and isfinite(output_usd) and min(input_usd, output_usd) >= 0):
        raise UsageError(
            f"--api-usd-per-mtok is '{price}'; write dollars per million input and output tokens, such as 0.60,0.60"
        )
    return PricePerMtok(input_usd_per_mtok=input_usd, output_usd_per_mtok=output_usd)


def _refuse_gaps(gaps: Sequence[ReceiptGap], period: BilledPeriod) -> None:
    """Raise an error if requests of the period are missing in a file, because it would charge the others for them."""
    for gap in gaps:
        if gap.from_unix_s < period.end_unix_s and gap.to_unix_s > period.start_unix_s:
            first, last = (
                datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds") for at in (gap.from_unix_s, gap.to_unix_s)
            )
            raise UsageError(
                f"{gap.file} lacks {gap.lost} requests between {first} and {last}, when it could not be written; "
                f"bill the time before (--to {first}) and after (--from {last})"
            )


def _in_period(
    outcomes: Sequence[RequestOutcome], start: str | None, end: str | None
) -> tuple[list[RequestOutcome], BilledPeriod]:
    """Return the requests that ended in the period, and the period."""
    if not outcomes and (start is None or end is None):
        raise UsageError(
            "these files record no end of a request, so the period is unknown; give --from and --to, "
            "or serve requests with `penstock route --receipts FILE`"
        )
    start_s = min(one.sent_unix_s for one in outcomes) if start is None else _unix_s(start, "--from")
    end_s = max(one.ended_unix_s for one in outcomes) if end is None else _unix_s(end, "--to")
    if end_s <= start_s:
        raise UsageError("the period is empty; give a --to that is later than --from")
    inside = [one for one in outcomes if start_s <= one.ended_unix_s <= end_s]
    return inside, BilledPeriod(start_unix_s=start_s, end_unix_s=end_s)


def _unix_s(text: str, flag: str) -> float:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{flag} is '{text}'; write a date or a time, such as 2026-11-01 or 2026-11-01T06:00"
        ) from None
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()


def _check_pools(fleet: Fleet, outcomes: Iterable[RequestOutcome], replica_hours: Mapping[str, float]) -> None:
    known = {pool.name for pool in fleet.pools}
    for name in sorted({one.pool for one in outcomes if one.pool} - known):
        raise UsageError(
            f"pool '{name}' of the receipts is not in the fleet file; give the fleet that was routed, or add the pool"
        )
    for name in sorted(replica_hours.keys() - known):
        raise UsageError(f"no pool is called '{name}'; the pools are {', '.join(sorted(known))}")
    for pool in fleet.pools:
        if pool.usd_per_hour is None:
            raise UsageError(
                f"pool '{pool.name}' has no price; write the usd_per_hour of one replica in the fleet file"
            )
        if pool.role != "both":
            raise UsageError(
                f"pool '{pool.name}' has the role {pool.role}; only pools with `role: both` are routed and billed"
            )


def _billed_pool(
    fleet: Fleet,
    pool: Pool,
    charged: Sequence[RequestOutcome],
    served: Sequence[tuple[RequestOutcome, TokenWork]],
    period: BilledPeriod,
    replica_hours: Mapping[str, float],
) -> BilledPool:
    """Return a pool with its coefficients and its rented and busy time. `served` has requests of all recorded time."""
    mine = [one for one in charged if one.pool == pool.name]
    clipped = [_clip(one, period) for one in mine]
    begun_s, ended_s = np.array(clipped, float).reshape(-1, 2).T
    busy_s = busy_seconds([one.endpoint for one in mine], begun_s, ended_s)
    flight_s = fsum(ended - begun for begun, ended in clipped)
    record = endpoint_record(placed_pool(fleet, pool), pool)
    hours = replica_hours.get(pool.name)
    rented_s = pool.replicas * period.seconds if hours is None else hours * _HOUR_S
    mean_batch = max(1.0, flight_s / busy_s) if busy_s > 0 else 1.0
    known = [(outcome, work) for outcome, work in served if outcome.pool == pool.name]
    predicted = StepCoefficients.of(record[0])
    return BilledPool(
        name=pool.name,
        model=pool.model,
        vendor=pool.vendor,
        coefficients=correct_coefficients(predicted, _answers(predicted, known), mean_batch),
        time=RentedTime(rented_s=rented_s, busy_s=busy_s, usd_per_s=float(record["usd_per_s"][0])),
        mean_batch=mean_batch,
    )


def _answers(coefficients: StepCoefficients, served: Sequence[tuple[RequestOutcome, TokenWork]]) -> ObservedAnswers:
    """Return the times of a pool's recorded requests."""
    outcomes = [outcome for outcome, _ in served]
    sent_s = np.array([one.sent_unix_s for one in outcomes], float)
    return ObservedAnswers(
        endpoint=[one.endpoint for one in outcomes],
        sent_s=sent_s,
        first_s=sent_s + np.array([nan if one.ttft_s is None else one.ttft_s for one in outcomes], float),
        ended_s=np.array([one.ended_unix_s for one in outcomes], float),
        predicted=coefficients.step_seconds(token_work(work for _, work in served)),
    )


def _clip(outcome: RequestOutcome, period: BilledPeriod) -> tuple[float, float]:
    begun_s = max(outcome.sent_unix_s, period.start_unix_s)
    return begun_s, max(begun_s, min(outcome.ended_unix_s, period.end_unix_s))


@dataclass(frozen=True, slots=True)
class _PoolScales:
    """Factors on the estimated tokens of a pool's requests."""

    prompt: TokenScale
    answer: TokenScale

    @property
    def metered(self) -> bool:
        return self.prompt.metered and self.answer.metered


def _is_charged(outcome: RequestOutcome) -> bool:
    return bool(outcome.pool) and outcome.status < _BAD and not outcome.failed


def _is_metered(outcome: RequestOutcome, scales: "_PoolScales") -> bool:
    """Return whether the engine counted the tokens of a request, or the sum to which they are scaled."""
    prompt, answer = scales.prompt.metered, scales.answer.metered
    return (outcome.prompt_counted or prompt) and (outcome.output_counted or answer)


def _scales(
    traffic: RecordedTraffic, recorded: Sequence[RequestOutcome], models: Mapping[str, str]
) -> Mapping[str, _PoolScales]:
    """Return the factors by which each pool's estimated tokens equal the counts of its engines.

    `recorded` has requests of all recorded time, as the counters do. Every gateway reads the same counters, so only the
    file with the most meters is used.
    """
    scales = {one.pool: _PoolScales(TokenScale(), TokenScale()) for one in recorded}
    if not traffic.meters:
        return scales
    file, _ = Counter(meter.file for meter in traffic.meters).most_common(1)[0]
    meters = sorted((one for one in traffic.meters if one.file == file), key=lambda one: one.at_unix_s)
    for pool in scales:
        mine = sorted((one for one in recorded if one.pool == pool), key=attrgetter("ended_unix_s"))
        addresses = sorted({one.endpoint for one in mine})
        prompts, answers = _Metered(), _Metered()
        for before, after in pairwise(meters):
            first, last = (bisect_right(mine, at.at_unix_s, key=attrgetter("ended_unix_s")) for at in (before, after))
            _add_interval(before, after, addresses, mine[first:last], prompts, answers)
        scales[pool] = _PoolScales(token_scale(prompts.intervals), token_scale(answers.intervals))
    return _with_those_of_the_model(scales, models)


def _with_those_of_the_model(scales: Mapping[str, _PoolScales], models: Mapping[str, str]) -> Mapping[str, _PoolScales]:
    """Give each pool without counts of its engines the factors of another pool of its model."""
    metered = {models[pool]: found for pool, found in sorted(scales.items()) if found.metered}
    return {
        pool: found
        if found.metered or models[pool] not in metered
        else replace(
            metered[models[pool]],
            prompt=replace(metered[models[pool]].prompt, metered=False),
            answer=replace(metered[models[pool]].answer, metered=False),
        )
        for pool, found in scales.items()
    }


@dataclass(kw_only=True)
class _Metered:
    """Estimated tokens and what engines counted beyond the known ones, by interval between two meters."""

    intervals: list[MeteredTokens] = field(default_factory=list)
    early: float = 0.0
    """Tokens that engines counted in earlier intervals, of requests whose count arrived when they ended."""

    def add(self, *, streamed: float, whole: float, rest: float) -> None:
        """Add an interval in which engines counted `rest` tokens more than the requests that ended in it state."""
        rest += self.early
        self.early = min(0.0, rest)
        self.intervals.append(MeteredTokens(streamed=streamed, whole=whole, counted=max(0.0, rest)))


def _add_interval(
    before: Meter,
    after: Meter,
    addresses: Sequence[str],
    inside: Sequence[RequestOutcome],
    prompts: _Metered,
    answers: _Metered,
) -> None:
    """Add the tokens of requests that ended between two meters. Nothing is added if an engine started again."""
    pairs = [(before.tokens.get(name, (0.0, 0.0)), after.tokens.get(name, (0.0, 0.0))) for name in addresses]
    counted = [(now[0] - then[0], now[1] - then[1]) for then, now in pairs]
    if not all(prompt >= 0 and output >= 0 for prompt, output in counted):
        return
    known = sum(one.input_tokens for one in inside if one.prompt_counted)
    estimated = sum(one.input_tokens for one in inside if not one.prompt_counted)
    prompts.add(streamed=float(estimated), whole=0.0, rest=fsum(prompt for prompt, _ in counted) - known)
    known = sum(one.output_tokens for one in inside if one.output_counted)
    streamed = sum(one.output_tokens for one in inside if one.streamed and not one.output_counted)
    whole = sum(one.output_tokens for one in inside if not one.streamed and not one.output_counted)
    answers.add(streamed=float(streamed), whole=float(whole), rest=fsum(output for _, output in counted) - known)


def _billed_request(outcome: RequestOutcome, scales: Mapping[str, _PoolScales]) -> BilledRequest:
    scale = scales[outcome.pool]
    prompt = 1.0 if outcome.prompt_counted else scale.prompt.streamed
    answer = scale.answer.streamed if outcome.streamed else scale.answer.whole
    input_tokens = round(outcome.input_tokens * prompt)
    work = TokenWork(
        input_tokens=input_tokens,
        cached_tokens=min(input_tokens, round(outcome.cached_tokens * prompt)),
        output_tokens=round(outcome.output_tokens * (1.0 if outcome.output_counted else answer)),
    )
    return BilledRequest(tenant=outcome.tenant, pool=outcome.pool, work=work, kept=outcome.kept)
