"""Routes requests to the endpoints of a fleet: `penstock route`."""

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from penstock.api.arguments.endpoint_record import endpoint_record
from penstock.api.arguments.fleet_argument import fleet_choice, placed_pool
from penstock.api.arguments.shared_device_argument import swapping_devices
from penstock.api.options.file_types import AskedFleet
from penstock.api.options.gateway_options import GatewayOptions
from penstock.errors import MissingExtra, UsageError
from penstock.fleet.pools import Fleet, Pool
from penstock.routing.records import new_endpoints
from penstock.routing.relative_capacity import set_relative_capacities
from penstock.simulation.replica import Replica

if TYPE_CHECKING:
    from penstock.gateway.envoy.envoy_config import EnvoySettings
    from penstock.gateway.state.routed_device import RoutedDevice
    from penstock.gateway.state.routed_fleet import RoutedFleet

log = logging.getLogger(__name__)
_REMOVED: Final = "ext_authz"


def routed_fleet(asked: AskedFleet, generation: int = 0, *, follow_names: bool = False) -> "RoutedFleet":
    """Build the fleet as the picker sees it, with the step times, KV cache and price of each endpoint."""
    from penstock.gateway.state.routed_fleet import RoutedClass, RoutedFleet, RoutedPool, requestable_names  # noqa: PLC0415 - needs the extra

    fleet = fleet_choice(asked)
    pools = [pool for pool in fleet.pools if pool.endpoints]
    models = tuple(dict.fromkeys(pool.model for pool in pools))
    names = requestable_names(models, [pool.adapters for pool in pools])
    vendors = tuple(dict.fromkeys(pool.vendor for pool in pools))
    kinds, records, found = [], [], list[tuple[Pool, str]]()
    for number, pool in enumerate(pools):
        if pool.role != "both":
            raise UsageError(
                f"pool '{pool.name}' has the role {pool.role}; only pools with `role: both` can be routed to"
            )
        record = endpoint_record(_place(fleet, pool), pool)
        record["pool"], record["vendor"] = number, vendors.index(pool.vendor)
        record["serves"] = sum(1 << names.index(name) for name in (pool.model, *pool.adapters))
        here = _addresses(pool, follow_names=follow_names)
        kinds.append(record)
        records += [record] * len(here)
        found += [(pool, address) for address in here]
    addresses = tuple(address for _, address in found)
    shared = next((address for address in addresses if addresses.count(address) > 1), None)
    if shared is not None:
        raise UsageError(f"two endpoints have the address {shared}; give each replica its own address")
    endpoints = np.concatenate(records) if records else new_endpoints(0)
    set_relative_capacities(endpoints)
    return RoutedFleet(
        name=fleet.name,
        generation=generation,
        addresses=addresses,
        pools=tuple(pool.name for pool, _ in found),
        engines=tuple(pool.engine.name for pool, _ in found),
        models=models,
        served=tuple(pool.model for pool, _ in found),
        adapters=tuple(pool.adapters for pool, _ in found),
        followed=tuple(address for pool in pools for address in pool.endpoints) if follow_names else (),
        classes=tuple(
            RoutedClass(
                name=route.workload,
                model=fleet.pool(next(iter(route.weights))).model,
                input_tokens=route.input_tokens,
                output_tokens=route.output_tokens,
                ttft_s=route.slo.ttft_s,
                tpot_s=route.slo.tpot_s,
                e2e_s=route.slo.e2e_s,
                requests_per_s=route.peak_requests_per_s,
                overload=route.overload,
            )
            for route in fleet.routes
        ),
        endpoints=endpoints,
        kinds=tuple(RoutedPool(name=pool.name, model=pool.model, most=pool.replicas) for pool in pools),
        kind_records=np.concatenate(kinds) if kinds else new_endpoints(0),
        devices=_routed_devices(fleet, [pool.name for pool, _ in found]),
    )


def _routed_devices(fleet: Fleet, pool_of: Sequence[str]) -> "tuple[RoutedDevice, ...]":
    """Return the shared devices. The replicas of a pool have the places on devices in the order of its endpoints."""
    from penstock.gateway.state.routed_device import RoutedDevice, SharingEndpoint  # noqa: PLC0415 - needs the extra

    left = {name: [index for index, pool in enumerate(pool_of) if pool == name] for name in set(pool_of)}
    return tuple(
        RoutedDevice(
            name=device.name,
            capacity_bytes=device.capacity_bytes,
            eviction=device.eviction,
            members=tuple(
                SharingEndpoint(
                    endpoint=left[one.pool].pop(0),
                    asleep_bytes=one.asleep_bytes,
                    swap_bytes=one.awake_bytes - one.asleep_bytes,
                    wake_s=one.wake_s,
                    sleep_s=one.sleep_s,
                    kept_awake=one.kept_awake,
                    patience_s=one.patience_s,
                )
                for one in device.models
                if left.get(one.pool)
            ),
        )
        for device in swapping_devices(fleet)
        if any(left.get(one.pool) for one in device.models)
    )


def _addresses(pool: Pool, *, follow_names: bool) -> list[str]:
    """Return the addresses of a pool's replicas.

    Each endpoint has one address. If `follow_names` is true, each endpoint has all addresses to which its DNS name
    resolves.
    """
    from penstock.gateway.state.addresses import address_of, addresses_of  # noqa: PLC0415 - needs the extra

    if not follow_names:
        return [address_of(endpoint) for endpoint in pool.endpoints]
    return [address for endpoint in pool.endpoints for address in addresses_of(endpoint)]


@dataclass(frozen=True)
class _Key:
    """Cache key for the placement of a pool.

    Thanks to this key, a reload of the fleet file places only the changed pools again.
    """

    text: str
    fleet: Fleet
    pool: Pool

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.text == other.text


def _place(fleet: Fleet, pool: Pool) -> Replica:
    settings = repr((pool.model, pool.weights, pool.kv, pool.accelerator, pool.engine, pool.split, pool.drafted_tokens))
    return _place_once(_Key(settings, fleet, pool))


@cache
def _place_once(key: _Key) -> Replica:
    return placed_pool(key.fleet, key.pool)


def _require_extra() -> None:
    for name in ("httptools", "uvloop"):
        if find_spec(name) is None:
            raise MissingExtra('`penstock route` needs an extra: pip install "penstock[gateway]"')


def envoy_settings(options: GatewayOptions, folder: Path, *, wakes_models: bool = False) -> "EnvoySettings":
    """Validate the options of a gateway and return Envoy's settings. `folder` holds the files of the gateway.

    `wakes_models` is true if models of the fleet share devices.
    """
    _require_extra()
    from penstock.gateway.envoy.envoy_config import PICK_PROTOCOLS, EnvoySettings  # noqa: PLC0415 - needs the extra
    from penstock.gateway.envoy.inference_paths import validate_paths  # noqa: PLC0415 - needs the extra
    from penstock.gateway.envoy.tracing import Traces  # noqa: PLC0415 - needs the extra
    from penstock.gateway.machine_limits import usable_bytes, usable_processors  # noqa: PLC0415 - needs the extra
    from penstock.gateway.state.access_rules import Certificate  # noqa: PLC0415 - needs the extra

    if options.protocol == _REMOVED:
        raise UsageError(
            f"--protocol {_REMOVED} is now --protocol module; leave the option out to use it where it loads"
        )
    if options.protocol not in {None, *PICK_PROTOCOLS}:
        raise UsageError(f"--protocol is '{options.protocol}'; use one of {', '.join(PICK_PROTOCOLS)}")
    if options.only_pick is not None and options.protocol == "module":
        raise UsageError("--only-pick serves ext_proc queries; leave --protocol module out")
    for address in filter(None, (options.listen, options.metrics, options.only_pick)):
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 2**16:
            raise UsageError(f"'{address}' is not an address; write host:port, such as 127.0.0.1:8080")
    module = _module(options, wakes_models=wakes_models)
    usual = "ext_proc" if options.only_pick is not None else "ext_proc_buffered"
    protocol = "module" if module else options.protocol or usual
    if not 1 <= options.pickers <= 64:  # beyond any machine's cores
        raise UsageError(f"--pickers is {options.pickers}; use a number from 1 to 64")
    workers = options.workers or min(64, usable_processors())
    if not 1 <= workers <= 64:
        raise UsageError(f"--workers is {workers}; use a number from 1 to 64")
    return EnvoySettings(
        listen=options.listen,
        folder=folder,
        pickers=workers if module else options.pickers,
        concurrency=workers,
        memory_bytes=usable_bytes(),
        module=module or ("", ""),
        protocol=next(known for known in PICK_PROTOCOLS if known == protocol),
        access_log=_absolute(options.access_log),
        metrics=options.metrics,
        receipts=_absolute(options.receipts),
        access_file=Path(options.access) if options.access is not None else None,
        certificate=Certificate(chain=Path(options.tls[0]), key=Path(options.tls[1])) if options.tls else None,
        traces=Traces(address=options.traces, fraction=options.trace_fraction) if options.traces else None,
        only_pick=options.only_pick,
        more_paths=validate_paths(options.allow_paths),
    )


def _module(options: GatewayOptions, *, wakes_models: bool) -> tuple[str, str] | None:
    """Return the paths of the module and its library, or None if pickers decide.

    Without `--protocol`, the log says why the module is not used.
    """
    from penstock.gateway.envoy.envoy_binary import envoy_program  # noqa: PLC0415 - needs the extra
    from penstock.gateway.inside_envoy.module_library import module_paths  # noqa: PLC0415 - needs the extra

    if options.only_pick is not None or options.protocol not in {None, "module"}:
        return None
    try:
        if wakes_models:
            raise UsageError("the module wakes no models, and the fleet has `shared_devices`")  # noqa: TRY301 - as below
        return module_paths(envoy_program())
    except UsageError as error:
        if options.protocol is not None:
            raise UsageError(f"--protocol module: {error}; or leave it out, so that pickers decide") from None
        log.warning("the policy does not run inside Envoy, so Envoy asks pickers by ext_proc_buffered: %s", error)
        return None


def _absolute(path: Path | str | None) -> str | None:
    return None if path is None else str(Path(path).absolute())


def _refuse_missing_folders(options: GatewayOptions) -> None:
    """Raise an error if the directory of an output file does not exist.

    The directory is checked before any process is started.
    """
    for flag, path in (("--receipts", options.receipts), ("--access-log", options.access_log)):
        if path is not None and not Path(path).absolute().parent.is_dir():
            folder = Path(path).absolute().parent
            raise UsageError(
                f"{flag}: the folder {folder} does not exist; create it (mkdir -p {folder}) or choose another path"
            )


def route(
    fleet: AskedFleet,
    options: GatewayOptions | None = None,
    *,
    drain_s: float = 30.0,
    grace_s: float = 5.0,
    ready: Callable[[], None] | None = None,
) -> None:
    """Serve a fleet behind one address until SIGTERM, as `penstock route` does. Reload the fleet file when it changes.

    For `grace_s` seconds after SIGTERM, health checks fail but requests are served. Then requests in flight have
    `drain_s` seconds to finish.
    """
    chosen = options or GatewayOptions()
    _refuse_missing_folders(chosen)
    watched = None if isinstance(fleet, Fleet) else Path(fleet)

    _require_extra()
    from penstock.gateway.gateway_folder import gateway_folder  # noqa: PLC0415 - needs the extra
    from penstock.gateway.inside_envoy.module_table import reserved_bytes  # noqa: PLC0415 - needs the extra

    first = routed_fleet(fleet, follow_names=chosen.follow_names)
    settings = envoy_settings(chosen, folder=Path(), wakes_models=bool(first.devices))
    needed = reserved_bytes(first, settings.pickers, samples=settings.sample_every > 0) if settings.inside else 0
    with gateway_folder(needed) as folder:
        settings = replace(settings, folder=folder)
        from penstock.gateway.supervisor import Supervisor  # noqa: PLC0415 - needs the extra

        def read(made: int) -> "RoutedFleet":
            routed = routed_fleet(fleet, made, follow_names=chosen.follow_names)
            if settings.inside and routed.devices:
                raise UsageError("the module inside Envoy wakes no models; restart the gateway to use `shared_devices`")
            return routed

        Supervisor(settings, read, watched, drain_s=drain_s, grace_s=grace_s).run(ready)


def envoy_document(fleet: AskedFleet, options: GatewayOptions | None = None) -> str:
    """Return the configuration of an external Envoy that asks the pickers of `penstock route --only-pick`."""
    chosen = options or GatewayOptions()
    if chosen.only_pick is None:
        raise UsageError(
            "--print-envoy needs the address of the pickers; add --protocol ext_proc --only-pick HOST:PORT"
        )
    settings = envoy_settings(chosen, folder=Path("/run/penstock"))
    from penstock.gateway.envoy.config_files import envoy_files, standing_document  # noqa: PLC0415 - needs the extra
    from penstock.gateway.state.access_rules import access_of  # noqa: PLC0415 - needs the extra

    files = envoy_files(routed_fleet(fleet), settings, access_of(settings.access_file))
    return json.dumps(standing_document(files), indent=2)
