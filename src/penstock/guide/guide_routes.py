"""Writes a guide as a fleet: the pools of its cheapest fleets, and a route to them for each prompt length."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from penstock.errors import UsageError
from penstock.fleet.pools import Fleet, NodeGroup, Pool, Route
from penstock.guide.guide_result import GuideCell, GuideFleet, GuidePool, GuideResult
from penstock.planning.candidates.option_pools import option_pools
from penstock.units import format_digits

_SITE: Final = "site"


def guide_fleet(result: GuideResult, requests_per_s: float | None) -> Fleet:
    """Return one fleet for all workloads of a guide, each at the same load; the middle load if none is given.

    Workloads that run on the same kind of replica share a pool, whose replicas are added up.
    """
    loads = result.grid.loads
    load = loads[len(loads) // 2] if requests_per_s is None else requests_per_s
    if load not in loads:
        listed = ", ".join(format_digits(entry) for entry in loads)
        raise UsageError(f"{load:g} requests/s is not a load of the guide; use one of {listed}")
    cells = [cell for cell in result.cells if cell.requests_per_s == load and cell.winner is not None]
    if not cells:
        raise UsageError(f"no accelerator keeps the SLO at {load:g} requests/s; choose another load for the routes")
    pools = list(_pools(cells, result))
    return Fleet(
        name=result.name,
        note=f"the cheapest fleet of each workload by `penstock guide`, each at {format_digits(load)} requests/s",
        nodes=tuple(_nodes(cells)),
        pools=tuple(pools),
        routes=tuple(_route(cell, cell.winner) for cell in cells if cell.winner is not None),
    )


def _pool_name(model: str, pool: GuidePool) -> str:
    return f"{model} {pool.accelerator} {pool.way} {pool.engine} x{pool.unit_devices}".replace(" ", "-")


def _pools(cells: Sequence[GuideCell], result: GuideResult) -> Iterator[Pool]:
    found: dict[str, tuple[str, list[GuidePool]]] = {}
    for cell in cells:
        for pool in () if cell.winner is None else cell.winner.pools:
            found.setdefault(_pool_name(cell.shape.model, pool), (cell.shape.model, []))[1].append(pool)
    for name, (model, alike) in found.items():
        replicas = sum(pool.replicas for pool in alike)
        (made,) = option_pools(result.options[alike[0].kind], name=name, model=model, site=_SITE, replicas=replicas)
        device_hour_usd = sum(pool.usd_per_device_hour * pool.replicas for pool in alike) / replicas
        yield replace(made, usd_per_hour=float(f"{device_hour_usd * made.devices:.9g}"))


def _nodes(cells: Sequence[GuideCell]) -> Iterator[NodeGroup]:
    units: dict[tuple[str, int], tuple[int, int]] = {}
    for cell in cells:
        for pool in () if cell.winner is None else cell.winner.pools:
            key = (pool.accelerator, pool.unit_devices)
            nodes, spare = units.get(key, (0, 0))
            units[key] = nodes + pool.units, spare + pool.spare_units
    for (accelerator, devices), (nodes, spare) in units.items():
        yield NodeGroup(accelerator=accelerator, site=_SITE, nodes=nodes, spare_nodes=spare, node_devices=devices)


def _route(cell: GuideCell, fleet: GuideFleet) -> Route:
    shape = cell.shape
    weights = {_pool_name(shape.model, pool): float(f"{pool.share_fraction:.6g}") for pool in fleet.pools}
    return Route(
        workload=f"{shape.model} {shape.input_tokens} in {shape.slo}",
        input_tokens=shape.input_tokens,
        output_tokens=shape.output_tokens,
        slo=shape.slo,
        peak_requests_per_s=cell.requests_per_s,
        weights=weights,
    )
