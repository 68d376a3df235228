"""Writes a fleet's constants in the formats of other routers and autoscalers: `penstock export`."""

from typing import Literal

from penstock.api.arguments.fleet_argument import deployed_pool, fleet_choice, placed_pool
from penstock.api.arguments.own_corrections import efficiencies_with, require_used
from penstock.api.arguments.static_weights import capacities
from penstock.api.compile_notice import compile_first
from penstock.api.options.calibration_choice import AskedCalibration
from penstock.api.options.file_types import AskedFleet
from penstock.api.progress import LOG, ProgressListener
from penstock.errors import UsageError
from penstock.exports.pool_constants import PoolConstants
from penstock.exports.router_files import COMPARE_PRICES, FORMATS, NEED_NO_ENDPOINTS, NEED_PRICES
from penstock.fleet.pools import Fleet, Pool, Route, example_endpoints
from penstock.performance.calibration.own_correction import fingerprint_of
from penstock.routing.autoscaler.sustained import LoadKind
from penstock.simulation.replica import ReplicaPool
from penstock.units import count_text


def export(
    fleet: AskedFleet, to: str, *, calibration: AskedCalibration | None = None, watch: ProgressListener = LOG
) -> str:
    """Return a fleet in another program's format, as `penstock export` prints it: `export("fleet.yaml", "litellm")`."""
    if to not in FORMATS:
        raise UsageError(f"--to: '{to}' is not a format; write one of {', '.join(FORMATS)}")
    chosen = fleet_choice(fleet)
    apart = next((pool for pool in chosen.pools if pool.role != "both"), None)
    if apart is not None:
        raise UsageError(f"pool '{apart.name}' has the role {apart.role}; only pools with `role: both` can be exported")
    unknown = next((pool for pool in chosen.pools if not pool.endpoints), None)
    if unknown is not None and to not in NEED_NO_ENDPOINTS:
        raise UsageError(
            f"pool '{unknown.name}' has no endpoints; write host:port of its {count_text(unknown.replicas, 'replica')} "
            f"in the fleet file, such as `endpoints: {example_endpoints(unknown)}` "
            f"({', '.join(sorted(NEED_NO_ENDPOINTS))} need none)"
        )
    unpriced = [pool.name for pool in chosen.pools if pool.usd_per_hour is None]
    if unpriced and (to in NEED_PRICES or (to in COMPARE_PRICES and len(unpriced) < len(chosen.pools))):
        raise UsageError(
            f"{', '.join(unpriced)}: no price; {to} would take it as free or as a default, so write `usd_per_hour` of "
            "each pool in the fleet file"
        )
    compile_first(watch)
    return FORMATS[to](constants_of(chosen, calibration))


def constants_of(fleet: Fleet, calibration: AskedCalibration | None = None) -> list[PoolConstants]:
    """Return each pool with the rate that one replica sustains within the SLO of the routes that it serves."""
    efficiencies = efficiencies_with(calibration)
    require_used(efficiencies, (fingerprint_of(deployed_pool(pool), pool.engine.name) for pool in fleet.pools))
    found = []
    for pool in fleet.pools:
        routes = [route for route in fleet.routes if pool.name in route.weights]
        if not routes:
            raise UsageError(f"no route of the fleet file sends requests to pool '{pool.name}'; remove the pool")
        placed = ReplicaPool(name=pool.name, replica=placed_pool(fleet, pool, efficiencies), replicas=1)
        (rate,) = capacities([placed], _kinds(routes, pool))
        found.append(
            PoolConstants(
                pool=pool,
                requests_per_s=rate,
                input_tokens=_mean_tokens(routes, pool, "input_tokens"),
                output_tokens=_mean_tokens(routes, pool, "output_tokens"),
                replica=placed.replica,
                slo=max(routes, key=lambda route: route.peak_requests_per_s * route.weights[pool.name]).slo,
            )
        )
    return found


def _kinds(routes: list[Route], pool: Pool) -> tuple[LoadKind, ...]:
    rates = _rates(routes, pool)
    return tuple(
        LoadKind(
            share=rate / sum(rates),
            input_tokens=route.input_tokens,
            output_tokens=route.output_tokens,
            **{
                name: limit_s
                for name in ("ttft_s", "tpot_s", "e2e_s")
                if (limit_s := getattr(route.slo, name)) is not None
            },
        )
        for route, rate in zip(routes, rates, strict=True)
    )


def _rates(routes: list[Route], pool: Pool) -> list[float]:
    return [route.peak_requests_per_s * route.weights[pool.name] for route in routes]


def _mean_tokens(routes: list[Route], pool: Pool, kind: Literal["input_tokens", "output_tokens"]) -> float:
    rates = _rates(routes, pool)
    total = sum(rate * getattr(route, kind) for rate, route in zip(rates, routes, strict=True))
    return float(total / sum(rates))
