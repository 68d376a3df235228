"""Writes a guide as a fleet: the pools of its cheapest fleets, and a route to them for each prompt length."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from penstock.errors import UsageError
from penstock.fleet.pools import Fleet, NodeGroup, Pool, Route
from penstock.guide.grid import Grid
from penstock.guide.guide_result import GuideCell, GuideFleet, GuidePool, GuideResult
from penstock.planning.candidates.option_pools import option_pools
from penstock.units import format_digits

_SITE: Final = "site"


def guide_fleet(result: GuideResult, requests_per_s: float | None) -> Fleet:
    """Return one fleet for all workloads of a guide, each at the same load.

    If no load is given, each prompt length of a trace has its own load at the trace's peak. Without a trace, it is the
    middle load. Workloads that run on the same kind of replica share a pool, whose replicas are added up.
    """
    if requests_per_s is None and result.trace_cells:
        cells, loads = _with_winner(result.trace_cells), "at its share of the trace's busiest minute"
    else:
        load = _load_of(result.grid, requests_per_s)
        cells = _with_winner(cell for cell in result.cells if cell.requests_per_s == load)
        loads = f"at {format_digits(load)} requests/s"
    if not cells:
        raise UsageError(f"no accelerator keeps the SLO of a workload {loads}; choose another load for the routes")
    total = format_digits(sum(cell.requests_per_s for cell in cells))
    pools = list(_pools(cells, result))
    return Fleet(
        name=result.name,
        note=f"the cheapest fleet of each workload by `penstock guide`, each {loads}; {total} requests/s in total",
        nodes=tuple(_nodes(cells)),
        pools=tuple(pools),
        routes=tuple(_route(cell, cell.winner) for cell in cells if cell.winner is not None),
    )


def _with_winner(cells: Iterable[GuideCell]) -> list[GuideCell]:
    return [cell for cell in cells if cell.winner is not None]


def _load_of(grid: Grid, requests_per_s: float | None) -> float:
    """Return a load of the grid. If none is given, return the middle load."""
    load = grid.loads[len(grid.loads) // 2] if requests_per_s is None else requests_per_s
    if load not in grid.loads:
        listed = ", ".join(format_digits(entry) for entry in grid.loads)
        raise UsageError(f"{load:g} requests/s is not a load of the guide; use one of {listed}")
    return load


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
    """Yield the nodes of each size. Workloads share the spares: the most that one of them has."""
    units: dict[tuple[str, int], tuple[int, int]] = {}
    for cell in cells:
        for pool in () if cell.winner is None else cell.winner.pools:
            key = (pool.accelerator, pool.unit_devices)
            serving, spare = units.get(key, (0, 0))
            units[key] = serving + pool.units - pool.spare_units, max(spare, pool.spare_units)
    for (accelerator, devices), (serving, spare) in units.items():
        yield NodeGroup(
            accelerator=accelerator,
            site=_SITE,
            nodes=serving + spare,
            spare_nodes=spare,
            node_devices=devices,
        )


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
