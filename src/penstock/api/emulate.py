"""Serves mock OpenAI endpoints of a fleet, with simulated latency: `penstock emulate`."""

import asyncio
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from penstock.api.arguments.fleet_argument import deployed_pool, fleet_choice, placed_pool, typical_tokens
from penstock.api.arguments.shared_device_argument import swapping_devices
from penstock.api.options.file_types import AskedFleet
from penstock.api.options.gateway_options import EmulateOptions
from penstock.api.options.option_fields import takes
from penstock.errors import MissingExtra, UsageError
from penstock.fleet.engine_settings import caches_prefixes
from penstock.fleet.pools import Fleet, Pool
from penstock.performance.memory.budget import fit
from penstock.performance.residency.transition_times import discard, sleep_to_host, wake_from_disk, wake_from_host
from penstock.simulation.replica import Replica

if TYPE_CHECKING:
    from penstock.emulator.emulated_endpoint import EmulatedReplica
    from penstock.emulator.server_facts import ServerFacts
    from penstock.emulator.sleep_mode import SleepTimes

_BLOCK_TOKENS: Final = 16
"""Minimum size of an emulated KV block in tokens. Engines with blocks of one token are emulated with this size."""


def emulated_fleet(fleet: AskedFleet, *, port: int | None = None) -> Fleet:
    """Give every replica an address on this machine, at consecutive ports from `port` on.

    Without `port`, the fleet file must list the addresses.
    """
    chosen = fleet_choice(fleet)
    pools, number = [], 0
    for pool in chosen.pools:
        if pool.role != "both":
            raise UsageError(
                f"pool '{pool.name}' has the role {pool.role}; only pools with `role: both` can be emulated"
            )
        if port is not None:
            addresses = tuple(f"127.0.0.1:{port + number + index}" for index in range(pool.replicas))
            pool = replace(pool, endpoints=addresses)  # noqa: PLW2901 - the same pool, with addresses
        number += len(pool.endpoints)
        pools.append(pool)
    if not number:
        raise UsageError(
            "the fleet file lists no endpoint addresses; add --port 18000 to serve its replicas on this machine"
        )
    return replace(chosen, pools=tuple(pools))


def emulated_replicas(fleet: Fleet) -> "tuple[EmulatedReplica, ...]":
    """Predict the step times and the KV cache size of every endpoint."""
    found: list[EmulatedReplica] = []
    for pool in fleet.pools:
        if pool.endpoints:
            found += _replicas(fleet, pool)
    return tuple(_on_devices(fleet, found))


def _on_devices(fleet: Fleet, replicas: "list[EmulatedReplica]") -> "list[EmulatedReplica]":
    """Let replicas share their devices. Models that do not fit together start asleep."""
    from penstock.emulator.sleep_mode import DeviceMemory, MemoryShare  # noqa: PLC0415 - needs the extra

    placed = list(replicas)
    left = {pool.name: [at for at, one in enumerate(placed) if one.pool == pool.name] for pool in fleet.pools}
    for device in swapping_devices(fleet):
        memory = DeviceMemory(device.capacity_bytes - device.awake_bytes)
        for one in device.models:
            if left[one.pool]:
                at = left[one.pool].pop(0)
                share = MemoryShare(
                    device=memory,
                    swap_bytes=one.awake_bytes - one.asleep_bytes,
                    asleep=not (one.awake or one.kept_awake),
                )
                placed[at] = replace(placed[at], memory=share)
    return placed


def _replicas(fleet: Fleet, pool: Pool) -> "list[EmulatedReplica]":
    from penstock.emulator.emulated_endpoint import EmulatedReplica  # noqa: PLC0415 - needs the extra

    replica = _coarse(placed_pool(fleet, pool))
    return [
        EmulatedReplica(
            address=address,
            pool=pool.name,
            model=pool.model,
            adapters=pool.adapters,
            engine=pool.engine.name,
            simulated=replica,
            facts=_facts(pool),
            sleep=_sleep_times(pool),
            max_tokens=replica.max_tokens,
            usual_output_tokens=typical_tokens(fleet, pool)[1],
        )
        for address in pool.endpoints
    ]


def _facts(pool: Pool) -> "ServerFacts":
    """Return what the server says about its setup."""
    from penstock.emulator.server_facts import ServerFacts  # noqa: PLC0415 - needs the extra

    engine = deployed_pool(pool).engine
    return ServerFacts(
        version=pool.engine.version,
        weights=pool.weights,
        cache_dtype=pool.kv,
        split=pool.split,
        max_sequences=engine.max_sequences,
        max_batched_tokens=engine.max_batched_tokens,
        prefix_caching=caches_prefixes(pool.engine.settings),
        drafted_tokens=pool.drafted_tokens,
    )


def _sleep_times(pool: Pool) -> "SleepTimes | None":
    """Return the median times to sleep and to wake, from published times. None if they are undetermined."""
    from penstock.emulator.sleep_mode import SleepTimes  # noqa: PLC0415 - needs the extra

    deployment = deployed_pool(pool)
    budget = fit(deployment, 1).budget
    weights = 0 if budget is None else budget.weight_bytes
    accelerator, engine = deployment.accelerator, deployment.engine.name
    taken = (
        sleep_to_host(accelerator, engine, weights),
        discard(accelerator, engine),
        wake_from_host(accelerator, engine, weights),
        wake_from_disk(accelerator, engine, weights),
    )
    known = [one.median_s for one in taken if one is not None]
    return SleepTimes(sleep_s=(known[0], known[1]), wake_s=(known[2], known[3])) if len(known) == len(taken) else None


def _coarse(replica: Replica) -> Replica:
    if replica.block_tokens >= _BLOCK_TOKENS:
        return replica
    return replace(replica, kv_blocks=max(1, replica.kv_tokens // _BLOCK_TOKENS), block_tokens=_BLOCK_TOKENS)


@takes(EmulateOptions)
def emulate(options: EmulateOptions) -> None:
    """Serve the endpoints of a fleet with predicted latencies until SIGTERM or SIGINT, as `penstock emulate` does.

    Emulated engines run `speed` times as fast as real time. Once all ports are open, `ready` is called with the fleet,
    including the addresses of its endpoints.
    """
    if find_spec("httptools") is None or find_spec("uvloop") is None:
        raise MissingExtra('`penstock emulate` needs an extra: pip install "penstock[gateway]"')
    import uvloop  # noqa: PLC0415 - optional extra

    from penstock.emulator import emulator_server  # noqa: PLC0415 - needs the extra

    fleet, ready = emulated_fleet(options.fleet, port=options.port), options.ready
    serving = emulator_server.emulate(
        emulated_replicas(fleet),
        control=options.control,
        speed=options.speed,
        seed=options.seed,
        ready=None if ready is None else lambda: ready(fleet),
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serving)
