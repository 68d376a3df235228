"""Makes an invoice by tenant from the charges of all pools, with the cost of the same work on other vendors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import Final, Literal

from penstock.billing.charges import PoolCharges, RentedTime, charge_requests
from penstock.billing.step_seconds import StepCoefficients, StepSeconds, TokenWork, token_work

IdleRule = Literal["separate", "spread"]
IDLE_RULES: Final[tuple[IdleRule, ...]] = ("separate", "spread")
_MTOK: Final = 1e6
_MIN_CHARGED_FRACTION: Final = 1e-9
"""Charged dollars per idle dollar below which idle time is not spread, because the quotient would lose its digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledRequest:
    """A request that a pool served."""

    tenant: str
    """Name of the tenant; empty if the request was anonymous."""
    pool: str
    work: TokenWork
    kept: bool | None = None
    """Whether the request met its SLO; None if that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledPool:
    """A pool in the period of the invoice."""

    name: str
    model: str
    vendor: str
    coefficients: StepCoefficients
    time: RentedTime
    mean_batch: float = 1.0
    """Mean number of requests in flight at a replica while it was busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PricePerMtok:
    """Price of an API in dollars per million tokens."""

    input_usd_per_mtok: float
    output_usd_per_mtok: float

    def usd(self, input_tokens: int, output_tokens: int) -> float:
        """Return the price of a number of tokens."""
        return (input_tokens * self.input_usd_per_mtok + output_tokens * self.output_usd_per_mtok) / _MTOK


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantLine:
    """The invoice of one tenant."""

    tenant: str
    requests: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    own_s: float
    """Seconds that the tenant's requests add to their replicas' steps."""
    shared_s: float
    """The tenant's part of the busy seconds that no single request causes."""
    credited_s: float
    """Prefill seconds that cached prefixes saved."""
    idle_usd: float
    """The tenant's part of idle time; 0 if idle time is separate."""
    usd: float
    """Dollars of the invoice, with `idle_usd`."""
    share_fraction: float | None
    """Part of all tenants' dollars; None if all tenants together pay nothing."""
    kept: int
    missed: int
    unknown: int
    """Requests without an SLO, or of which it is not known whether they met it."""
    refused: int
    """Requests that were refused or failed. They are not charged, and count as `missed`."""
    vendor_usd: Mapping[str, float | None]
    """Dollars if pools of this vendor had served all of the tenant's requests; None if it has no pool of a model."""
    api_usd: float | None

    @property
    def seconds(self) -> float:
        """Charged seconds of rented time, without idle time."""
        return self.own_s + self.shared_s


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLine:
    """How the rented time of one pool was used."""

    pool: str
    model: str
    vendor: str
    requests: int
    rented_s: float
    busy_s: float
    own_s: float
    """Seconds that requests add to steps, as charged."""
    own_scale: float
    usd: float
    idle_usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Invoice:
    """An invoice. The dollars of all tenants and of idle time add up to the rent."""

    tenants: tuple[TenantLine, ...]
    """Lines by falling dollars."""
    pools: tuple[PoolLine, ...]
    idle: IdleRule
    idle_usd: float
    """Dollars of idle time that no tenant pays."""
    rent_usd: float


@dataclass(slots=True)
class _Sums:
    """Amounts of one tenant, collected request by request."""

    works: list[TokenWork] = field(default_factory=list)
    credited_s: list[float] = field(default_factory=list)
    own_s: list[float] = field(default_factory=list)
    shared_s: list[float] = field(default_factory=list)
    usd: list[float] = field(default_factory=list)
    idle_usd: list[float] = field(default_factory=list)
    kept: list[bool | None] = field(default_factory=list)
    vendor_usd: dict[str, list[float | None]] = field(default_factory=dict)
    refused: int = 0


@dataclass(frozen=True, slots=True)
class _Served:
    """A pool, its requests and their charges."""

    pool: BilledPool
    requests: tuple[BilledRequest, ...]
    steps: StepSeconds
    charged: PoolCharges
    usd: tuple[float, ...]


def make_invoice(
    requests: Sequence[BilledRequest],
    pools: Sequence[BilledPool],
    *,
    idle: IdleRule,
    api: PricePerMtok | None = None,
    refused: Mapping[str, int] | None = None,
) -> Invoice:
    """Charge every request, and add up the charges by tenant.

    With `idle="spread"`, the idle time of all pools of a model is divided among the model's requests in proportion to
    their dollars. Idle time of a model without requests stays separate. `refused` has the number of refused and failed
    requests of each tenant.
    """
    served = [_serve(pool, [one for one in requests if one.pool == pool.name]) for pool in pools]
    vendors = tuple(dict.fromkeys(pool.vendor for pool in pools))
    sums = {tenant: _Sums(refused=count) for tenant, count in (refused or {}).items()}
    for one in served:
        factor = _idle_factor(served, one.pool.model) if idle == "spread" else 0.0
        elsewhere = {vendor: _usd_at(vendor, one, pools, factor) for vendor in vendors}
        columns = (one.steps.credited_s.tolist(), one.charged.own_s.tolist(), one.charged.shared_s.tolist(), one.usd)
        for place, (request, credited_s, own_s, shared_s, usd) in enumerate(zip(one.requests, *columns, strict=True)):
            tenant = sums.setdefault(request.tenant, _Sums())
            tenant.works.append(request.work)
            tenant.credited_s.append(credited_s)
            tenant.own_s.append(own_s)
            tenant.shared_s.append(shared_s)
            tenant.usd.append(usd)
            tenant.idle_usd.append(usd * factor)
            tenant.kept.append(request.kept)
            for vendor, amounts in elsewhere.items():
                tenant.vendor_usd.setdefault(vendor, []).append(None if amounts is None else amounts[place])
    return _add_up(sums, served, idle, api)


def _serve(pool: BilledPool, requests: Sequence[BilledRequest]) -> _Served:
    steps = pool.coefficients.step_seconds(token_work(one.work for one in requests))
    charged = charge_requests(pool.time, steps)
    return _Served(pool, tuple(requests), steps, charged, tuple((charged.seconds * pool.time.usd_per_s).tolist()))


def _idle_factor(served: Sequence[_Served], model: str) -> float:
    """Return the idle dollars of a model's pools per charged dollar of its requests, or 0."""
    mine = [one for one in served if one.pool.model == model]
    charged_usd = fsum(one.pool.time.busy_s * one.pool.time.usd_per_s for one in mine if one.requests)
    idle_usd = fsum(_idle_usd(one) for one in mine)
    return idle_usd / charged_usd if charged_usd > _MIN_CHARGED_FRACTION * idle_usd else 0.0


def _idle_usd(one: _Served) -> float:
    return one.charged.idle_s * one.pool.time.usd_per_s


def _usd_at(vendor: str, served: _Served, pools: Sequence[BilledPool], idle_factor: float) -> tuple[float, ...] | None:
    """Return the dollars of a pool's requests if a vendor's cheapest pool of the same model had served them.

    The result is None if the vendor has no pool of the model.
    """
    paid = 1.0 + idle_factor
    if served.pool.vendor == vendor:
        return tuple(usd * paid for usd in served.usd)
    others = [pool for pool in pools if pool.vendor == vendor and pool.model == served.pool.model]
    costs = [tuple(usd * paid for usd in _usd_on(pool, served)) for pool in others]
    return min(costs, key=fsum, default=None)


def _usd_on(pool: BilledPool, served: _Served) -> list[float]:
    """Return the dollars of requests on another pool: their own seconds there, in batches of the same size."""
    here_s = served.pool.coefficients.shared_step_s(served.pool.mean_batch)
    there_s = pool.coefficients.shared_step_s(served.pool.mean_batch)
    per_step_s = served.charged.shared_s_per_step * (there_s / here_s if here_s > 0 else 1.0)
    work = pool.coefficients.step_seconds(token_work(one.work for one in served.requests))
    seconds = work.own_s * served.charged.own_scale + work.steps * per_step_s
    return list((seconds * pool.time.usd_per_s).tolist())


def _add_up(sums: Mapping[str, _Sums], served: Sequence[_Served], idle: IdleRule, api: PricePerMtok | None) -> Invoice:
    charged_usd = fsum(usd for one in sums.values() for usd in (*one.usd, *one.idle_usd))
    lines = [_line(tenant, one, charged_usd, api) for tenant, one in sums.items()]
    spread = {one.pool.model for one in served if idle == "spread" and _idle_factor(served, one.pool.model) > 0}
    return Invoice(
        tenants=tuple(sorted(lines, key=lambda line: (-line.usd, line.tenant))),
        pools=tuple(_pool_line(one) for one in served),
        idle=idle,
        idle_usd=fsum(_idle_usd(one) for one in served if one.pool.model not in spread),
        rent_usd=fsum(one.pool.time.usd for one in served),
    )


def _line(tenant: str, sums: _Sums, charged_usd: float, api: PricePerMtok | None) -> TenantLine:
    usd, idle_usd = fsum((*sums.usd, *sums.idle_usd)), fsum(sums.idle_usd)
    input_tokens = sum(one.input_tokens for one in sums.works)
    output_tokens = sum(one.output_tokens for one in sums.works)
    return TenantLine(
        tenant=tenant,
        requests=len(sums.works),
        input_tokens=input_tokens,
        cached_tokens=sum(one.cached_tokens for one in sums.works),
        output_tokens=output_tokens,
        own_s=fsum(sums.own_s),
        shared_s=fsum(sums.shared_s),
        credited_s=fsum(sums.credited_s),
        idle_usd=idle_usd,
        usd=usd,
        share_fraction=usd / charged_usd if charged_usd > 0 else None,
        kept=sum(one is True for one in sums.kept),
        missed=sum(one is False for one in sums.kept) + sums.refused,
        unknown=sum(one is None for one in sums.kept),
        refused=sums.refused,
        vendor_usd={vendor: _known_sum(amounts) for vendor, amounts in sums.vendor_usd.items()},
        api_usd=None if api is None else api.usd(input_tokens, output_tokens),
    )


def _known_sum(amounts: Sequence[float | None]) -> float | None:
    known = [amount for amount in amounts if amount is not None]
    return fsum(known) if len(known) == len(amounts) else None


def _pool_line(one: _Served) -> PoolLine:
    return PoolLine(
        pool=one.pool.name,
        model=one.pool.model,
        vendor=one.pool.vendor,
        requests=len(one.requests),
        rented_s=one.pool.time.rented_s,
        busy_s=one.pool.time.busy_s,
        own_s=fsum(one.charged.own_s.tolist()),
        own_scale=one.charged.own_scale,
        usd=one.pool.time.usd,
        idle_usd=_idle_usd(one),
    )
