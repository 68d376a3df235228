"""Describes models on shared devices as a fleet for `penstock simulate --fleet` and `penstock route`."""

from collections.abc import Mapping, Sequence
from itertools import count

from penstock.fleet.engines import NEWEST
from penstock.fleet.pools import Fleet, NodeGroup, Pool, PoolEngine, Route, SharedDevice
from penstock.planning.shared_placement.model_loads import SizedModel
from penstock.planning.shared_placement.shared_fleet import SharedFleet


def shared_fleet_file(
    name: str, found: SharedFleet, models: Mapping[str, str], *, nodes: NodeGroup, usd_per_device_hour: float
) -> Fleet:
    """Return the fleet: a pool of one replica per model, a route to it, and the pools of each device.

    `models` has the name of each workload's model. The price of a replica is its model's share of the devices.
    """
    device_usd = usd_per_device_hour * len(found.devices)
    pools = [
        _pool(model, models[model.load.name], nodes.site, share * device_usd, name=pool_name)
        for model, share, pool_name in zip(found.models, found.cost_shares, _pool_names(found.models), strict=True)
    ]
    names = {f"{index} {model.load.name}": pools[index].name for index, model in enumerate(found.models)}
    return Fleet(
        name=" ".join(name.split()),
        note="chosen by `penstock plan --share`; `penstock preflight --fleet` prints the launches, to start in turn",
        nodes=(nodes,),
        pools=tuple(pools),
        routes=tuple(route for model, pool in zip(found.models, pools, strict=True) for route in _routes(model, pool)),
        shared_devices=tuple(
            SharedDevice(
                name=device.name.replace(" ", "-"),
                pools=tuple(names[one.pool] for one in device.models),
                kept_awake=tuple(names[one.pool] for one in device.models if one.kept_awake),
                eviction=device.eviction,
            )
            for device in found.devices
        ),
    )


def _pool_names(models: Sequence[SizedModel]) -> list[str]:
    """Return a name without spaces for each model's pool. If two names would be equal, the later gets a number."""
    names: list[str] = []
    for model in models:
        plain = "-".join(model.load.name.split())
        tried = (plain if number == 1 else f"{plain}-{number}" for number in count(1))
        names.append(next(name for name in tried if name not in names))
    return names


def _pool(model: SizedModel, named: str, site: str, usd_per_hour: float, *, name: str) -> Pool:
    deployment = model.placed.deployment
    engine = deployment.engine
    return Pool(
        name=name,
        model=named,
        weights=next(iter(deployment.model.formats)),
        kv=deployment.chosen_cache_dtype.value,
        accelerator=deployment.accelerator.id,
        vendor=deployment.accelerator.vendor,
        site=site,
        replicas=1,
        split=deployment.parallelism,
        engine=PoolEngine(
            name=engine.name,
            version=str(NEWEST[engine.name]),
            settings={
                "max_num_batched_tokens": engine.max_batched_tokens,
                "max_num_seqs": engine.max_sequences,
                "kv_cache_memory_bytes": max(1, model.kv_bytes),
                "max_model_len": model.load.context_tokens,
            },
        ),
        usd_per_hour=float(f"{usd_per_hour:.6g}"),
    )


def _routes(model: SizedModel, pool: Pool) -> list[Route]:
    total = sum(share.fraction for share in model.load.shares)
    return [
        Route(
            workload=" ".join(model.load.name.split()),
            input_tokens=share.bucket.input_tokens,
            output_tokens=share.bucket.output_tokens,
            slo=model.load.slo,
            peak_requests_per_s=float(f"{model.load.requests_per_s * share.fraction / total:.9g}"),
            weights={pool.name: 1.0},
        )
        for share in model.load.shares
    ]
