"""Writes and strictly parses fleet files in YAML. An error is one line with its line number and the fix."""

from collections.abc import Callable
from functools import partial
from typing import Final, cast

import yaml

from penstock.fleet.pools import ROLES, VERSION, Fleet, NodeGroup, Pool, Role, Route, address_problem, fault_of
from penstock.reading.yaml import Table, Value, read_table
from penstock.workload.slo import Slo

_HEAD: Final = (
    "# Pools are identical replicas; a route sends requests of about these lengths to pools by weight.\n"
    "# Fill in `endpoints`, one host:port per replica, once they run.\n"
)
_GB: Final = 1e9
SPLIT: Final = ("tp", "pp", "dp", "ep")
"""Keys of the table `split`, the parallelism."""
_POOL: Final = (
    "name",
    "model",
    "adapters",
    "weights",
    "kv",
    "accelerator",
    "vendor",
    "site",
    "replicas",
    "split",
    "drafted_tokens",
    "engine",
    "role",
    "feeds",
    "kv_gbps",
    "usd_per_hour",
    "elastic",
    "endpoints",
)
_WRITTEN_BY: Final = "penstock plan plan.yaml --fleet fleet.yaml"


def write_fleet(fleet: Fleet) -> str:
    """Return a fleet as YAML, which `read_fleet` parses."""
    document = {
        "version": fleet.version,
        "name": fleet.name,
        "note": fleet.note,
        "nodes": [_group_document(group) for group in fleet.nodes],
        "pools": [_pool_document(pool) for pool in fleet.pools],
        "routes": [_route_document(route) for route in fleet.routes],
    }
    body: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110)
    return _HEAD + body


def read_fleet(text: str, name: str) -> Fleet:
    """Parse a fleet file. `name` is the file name for error messages."""
    table = read_table(text, name, kind="fleet", written_by=_WRITTEN_BY)
    table.version(VERSION, written_by=_WRITTEN_BY)
    table.only("version", "name", "note", "nodes", "pools", "routes")
    values = {key: list(table.required(key).items()) for key in ("nodes", "pools", "routes")}
    nodes = tuple(value.made(_group) for value in values["nodes"])
    pools = tuple(value.made(_pool) for value in values["pools"])
    routes = tuple(value.made(_route) for value in values["routes"])
    fault = fault_of(nodes, pools, routes)
    if fault is not None:
        kind, number, problem = fault
        at = values[kind][number] if values[kind] else table.required(kind)
        at.refuse(problem)
    title, note = table.required("name").text(), table.optional("note", Value.text, None)
    return Fleet(name=title, note=note, nodes=nodes, pools=pools, routes=routes)


def _group_document(group: NodeGroup) -> dict[str, object]:
    return {
        "accelerator": group.accelerator,
        "site": group.site,
        "nodes": group.nodes,
        "spare_nodes": group.spare_nodes,
    }


def _group(table: Table) -> Callable[[], NodeGroup]:
    table.only("accelerator", "site", "nodes", "spare_nodes")
    return partial(
        NodeGroup,
        accelerator=table.required("accelerator").text(),
        site=table.required("site").text(),
        nodes=table.required("nodes").whole(low=1),
        spare_nodes=table.required("spare_nodes").whole(),
    )


def _pool_document(pool: Pool) -> dict[str, object]:
    return {
        "name": pool.name,
        "model": pool.model,
        **({"adapters": list(pool.adapters)} if pool.adapters else {}),
        "weights": pool.weights,
        "kv": pool.kv,
        "accelerator": pool.accelerator,
        "vendor": pool.vendor,
        "site": pool.site,
        "replicas": pool.replicas,
        "split": {"tp": pool.tp, "pp": pool.pp, "dp": pool.dp, "ep": pool.ep},
        **({"drafted_tokens": pool.drafted_tokens} if pool.drafted_tokens else {}),
        "engine": {"name": pool.engine, "version": pool.engine_version, "settings": dict(pool.settings)},
        "role": pool.role,
        **({"feeds": pool.feeds} if pool.feeds is not None else {}),
        **({"kv_gbps": pool.kv_bytes_per_s / _GB} if pool.kv_bytes_per_s is not None else {}),
        "usd_per_hour": pool.usd_per_hour,
        **({"elastic": True} if pool.elastic else {}),
        "endpoints": list(pool.endpoints),
    }


def _pool(table: Table) -> Callable[[], Pool]:
    table.only(*_POOL)
    split = table.required("split").table(*SPLIT)
    engine = table.required("engine").table("name", "version", "settings")
    return partial(
        Pool,
        name=table.required("name").text(),
        model=table.required("model").text(),
        adapters=_texts(adapters) if (adapters := table.get("adapters")) is not None else (),
        weights=table.required("weights").text(),
        kv=table.required("kv").text(),
        accelerator=table.required("accelerator").text(),
        vendor=table.required("vendor").text(),
        site=table.required("site").text(),
        replicas=table.required("replicas").whole(low=1),
        tp=split.required("tp").whole(low=1),
        pp=split.required("pp").whole(low=1),
        dp=split.required("dp").whole(low=1),
        ep=split.required("ep").flag(),
        drafted_tokens=table.optional("drafted_tokens", Value.whole, 0),
        engine=engine.required("name").text(),
        engine_version=engine.required("version").text(),
        settings={key: value.scalar() for key, value in engine.section("settings").every()},
        role=cast("Role", table.required("role").choice(ROLES)),
        feeds=table.optional("feeds", Value.text, None),
        kv_bytes_per_s=table.optional("kv_gbps", lambda entry: entry.number() * _GB, None),
        usd_per_hour=table.optional("usd_per_hour", Value.number, None),
        elastic=table.optional("elastic", Value.flag, otherwise=False),
        endpoints=tuple(_address(entry) for entry in table.required("endpoints").items()),
    )


def _address(entry: Value) -> str:
    address = entry.text()
    if (problem := address_problem(address)) is not None:
        entry.refuse(problem)
    return address


def _texts(value: Value) -> tuple[str, ...]:
    return tuple(entry.text() for entry in value.items())


def _route_document(route: Route) -> dict[str, object]:
    return {
        "workload": route.workload,
        "input_tokens": route.input_tokens,
        "output_tokens": route.output_tokens,
        "slo": slo_document(route.slo),
        "peak_requests_per_s": route.peak_requests_per_s,
        "weights": dict(route.weights),
    }


def _route(table: Table) -> Callable[[], Route]:
    table.only("workload", "input_tokens", "output_tokens", "slo", "peak_requests_per_s", "weights")
    return partial(
        Route,
        workload=table.required("workload").text(),
        input_tokens=table.required("input_tokens").whole(low=1),
        output_tokens=table.required("output_tokens").whole(low=1),
        slo=table.required("slo").made(read_slo),
        peak_requests_per_s=table.required("peak_requests_per_s").number(),
        weights={name: value.number() for name, value in table.required("weights").table().every()},
    )


def slo_document(slo: Slo) -> dict[str, object]:
    """Return an SLO as a document, which `read_slo` parses."""
    return {
        "ttft_s": slo.ttft_s,
        "tpot_s": slo.tpot_s,
        "e2e_s": slo.e2e_s,
        "attainment_fraction": slo.attainment_fraction,
    }


def read_slo(table: Table) -> Callable[[], Slo]:
    """Parse an SLO."""
    table.only("ttft_s", "tpot_s", "e2e_s", "attainment_fraction")
    return partial(
        Slo,
        ttft_s=table.optional("ttft_s", Value.number, None),
        tpot_s=table.optional("tpot_s", Value.number, None),
        e2e_s=table.optional("e2e_s", Value.number, None),
        attainment_fraction=table.required("attainment_fraction").number(),
    )
