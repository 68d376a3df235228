"""Defines a fleet: pools of identical replicas on nodes, and routes from requests to pools."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Annotated, ClassVar, Final, Literal

from penstock.errors import UsageError
from penstock.fleet.deployment import Parallelism
from penstock.fleet.engine_settings import EngineSettings, check_setting
from penstock.reading.file_shape import FieldError, file_config
from penstock.reading.scalars import LOWER_CASE, Count, Flag, Number, Parsed, Text, Whole, number
from penstock.workload.slo import Overload, Slo

VERSION: Final = 1
"""Version of the file format."""
UNSTATED: Final = "unstated"
"""Engine version of a fleet file whose author names no release."""
Role = Literal["both", "prefill", "decode"]
ROLES: Final[tuple[Role, ...]] = ("both", "prefill", "decode")
Eviction = Literal["least-harm", "least-recently-used"]
"""Which models give up their memory for a model that is asked for.

`least-harm` weighs the requests that wait against the requests that a model would miss if it had to wake again.
"""
EVICTIONS: Final[tuple[Eviction, ...]] = ("least-harm", "least-recently-used")
_ADDRESS: Final = re.compile(r"(?:[^\s/:\[\]]+|\[[0-9a-fA-F:.]+\]):\d{1,5}")
_SUM_TOLERANCE: Final = 0.005
_MAX_PORT: Final = 65_535
_SHOWN: Final = 3
"""Number of addresses in an example."""


def parse_address(address: str) -> str:
    """Return the address of an endpoint if it has the form host:port; otherwise raise an error."""
    if _ADDRESS.fullmatch(address) is None:
        raise UsageError(f"'{address}' is not an address; write host:port, such as 10.0.0.1:8000")
    if not 1 <= int(address.rpartition(":")[2]) <= _MAX_PORT:
        raise UsageError(f"'{address}' has an invalid port; write a port from 1 to {_MAX_PORT}")
    return address


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Nodes with the same accelerator at one site."""

    accelerator: str
    """Name from `penstock catalog list`."""
    site: str
    nodes: Count
    spare_nodes: Whole = 0
    """Number of these nodes that are spares."""
    node_devices: Count | None = None
    """Devices per node, if these are instances or nodes smaller than usual. Default: the accelerator's usual node."""

    def __post_init__(self) -> None:
        _words(accelerator=self.accelerator, site=self.site)
        _at_least_one(nodes=self.nodes, node_devices=1 if self.node_devices is None else self.node_devices)
        if not 0 <= self.spare_nodes <= self.nodes:
            raise UsageError(f"spare_nodes is {self.spare_nodes}; write 0 to {self.nodes}, the number of nodes")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolEngine:
    """The engine of a pool, and how it is started."""

    name: str
    version: Text
    settings: EngineSettings = field(default_factory=dict)
    """Settings with which the engine is started, keyed by the engine's own names."""
    image: str | None = None
    """Container image of this release. Default: no image is known."""
    launch: str | None = None
    """Command that starts one replica. No command of Penstock runs it."""

    def __post_init__(self) -> None:
        _words(engine=self.name, engine_version=self.version, **({} if self.image is None else {"image": self.image}))
        if self.launch is not None and not all(line.isprintable() for line in self.launch.split("\n")):
            raise UsageError("launch has a character that cannot be printed; write the command as lines of text")
        for key, value in self.settings.items():
            _words(setting=key, **({key: value} if isinstance(value, str) else {}))
            if isinstance(value, float) and not isfinite(value):
                raise UsageError(f"setting {key} is {value}; write a finite number")
            check_setting(key, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A pool of identical replicas of one model."""

    name: str
    model: str
    """Name from `penstock catalog models`, a config.json or a checkpoint directory."""
    adapters: tuple[str, ...] = ()
    """LoRA adapters of the pool's replicas, by the names that requests use."""
    weights: str
    """Data type of most weight bytes."""
    kv: str
    """Data type of the KV cache."""
    accelerator: str
    """Name from `penstock catalog list`, or the file of an accelerator of your own."""
    vendor: str
    """Vendor of the accelerator. Replicas of one vendor may fail together, so a fallback replica is from another
    vendor."""
    site: str
    replicas: Count
    split: Parallelism
    """Parallelism of one replica."""
    drafted_tokens: Whole = 0
    """Tokens drafted per step by the checkpoint's own multi-token-prediction layers; 0: none."""
    engine: PoolEngine
    role: Annotated[Role, LOWER_CASE] = "both"
    feeds: str | None = None
    """For a prefill pool: name of the decode pool that receives its KV cache. Default: any decode pool of the model."""
    kv_bytes_per_s: Annotated[float, number(unit=1e9)] | None = None
    """For a prefill pool: rate at which one replica sends KV, in gigabytes per second. Default: the speed of the links
    within one machine or rack."""
    usd_per_hour: Number | None = None
    """US dollars per hour of one replica. Default: unknown."""
    elastic: Flag = False
    """Whether idle replicas are released. Sending requests to other pools saves money only if idle replicas are
    released."""
    endpoints: tuple[Annotated[str, Parsed(parse_address, {"type": "string"})], ...] = ()
    """Addresses of replicas, host:port. An unlisted replica has no address yet."""

    def __post_init__(self) -> None:
        _words(name=self.name, model=self.model, weights=self.weights, kv=self.kv)
        _words(accelerator=self.accelerator, vendor=self.vendor, site=self.site)
        _at_least_one(replicas=self.replicas)
        self._check_adapters()
        if self.drafted_tokens < 0:
            raise UsageError(f"drafted_tokens is {self.drafted_tokens}; write 0 or more")
        if self.role not in ROLES:
            raise UsageError(f"role '{self.role}' is not one of {', '.join(ROLES)}")
        self._check_sending()
        if self.usd_per_hour is not None and not (isfinite(self.usd_per_hour) and self.usd_per_hour >= 0):
            raise UsageError(f"usd_per_hour is {self.usd_per_hour:g}; write dollars, or leave it empty")
        if len(self.endpoints) > self.replicas:
            counts = f"{len(self.endpoints)} endpoints but only {self.replicas} replicas"
            raise UsageError(f"the pool has {counts}; remove endpoints or add replicas")
        for address in self.endpoints:
            parse_address(address)

    def _check_adapters(self) -> None:
        for adapter in self.adapters:
            _words(adapter=adapter)
        if len({self.model, *self.adapters}) <= len(self.adapters):
            raise UsageError(
                "two adapters have the same name, or an adapter has the model's name; give each a different name"
            )

    def _check_sending(self) -> None:
        if self.role != "prefill" and (self.feeds is not None or self.kv_bytes_per_s is not None):
            raise UsageError(
                f"only a prefill pool may have `feeds` or `kv_gbps`; this pool's role is {self.role}: remove these keys"
            )
        if self.kv_bytes_per_s is not None and not (isfinite(self.kv_bytes_per_s) and self.kv_bytes_per_s > 0):
            raise UsageError(
                f"kv_gbps is {self.kv_bytes_per_s / 1e9:g}; write a rate above 0 in GB per second, or leave it out"
            )

    @property
    def devices(self) -> int:
        """Number of devices of one replica."""
        return self.split.devices


def example_endpoints(pool: Pool) -> str:
    """Return an example of the addresses of a pool's replicas, in the form that a fleet file has them."""
    shown = [f"10.0.0.{number + 1}:8000" for number in range(min(pool.replicas, _SHOWN))]
    return f"[{', '.join([*shown, '...'] if pool.replicas > _SHOWN else shown)}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedDevice:
    """A device, or a tensor-parallel group, on which the engines of several pools take turns.

    Each engine has the memory of its own settings, such as `kv_cache_memory_bytes`. If the engines exceed the device
    together, some of them sleep.
    """

    name: str
    pools: tuple[str, ...]
    """Pools with one replica on this device. A pool of three replicas is listed by three devices, in order."""
    kept_awake: tuple[str, ...] = ()
    """Pools of this device that never sleep."""
    eviction: Annotated[Eviction, LOWER_CASE] = "least-harm"
    """Which models sleep if one of the others needs their memory."""

    def __post_init__(self) -> None:
        _words(name=self.name)
        if not self.pools or len(set(self.pools)) != len(self.pools):
            raise UsageError(f"device '{self.name}' must list at least one pool, and each pool once")
        stray = [name for name in self.kept_awake if name not in self.pools]
        if stray:
            raise UsageError(f"device '{self.name}' keeps '{stray[0]}' awake, which is not one of its pools")
        if self.eviction not in EVICTIONS:
            raise UsageError(f"eviction '{self.eviction}' is not one of {', '.join(EVICTIONS)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Requests of similar length in a workload, their SLO, and the pools that serve them.

    A request belongs to the route with the nearest lengths, so every request has exactly one route.
    """

    workload: str
    input_tokens: Count
    output_tokens: Count
    slo: Slo
    peak_requests_per_s: Number
    weights: Mapping[str, Number]
    """Share of the route's requests that each pool receives, keyed by pool name."""
    overload: Overload = "serve"
    """What a router may do with these requests while the fleet is overloaded: serve, refuse or hold them."""

    def __post_init__(self) -> None:
        _words(workload=self.workload)
        _at_least_one(input_tokens=self.input_tokens, output_tokens=self.output_tokens)
        if not (isfinite(self.peak_requests_per_s) and self.peak_requests_per_s > 0):
            raise UsageError(f"peak_requests_per_s is {self.peak_requests_per_s:g}; write a rate above 0")
        if not all(isfinite(weight) and weight > 0 for weight in self.weights.values()):
            raise UsageError("every weight must be above 0; leave out a pool that gets no requests")
        total = sum(self.weights.values())
        if abs(total - 1) > _SUM_TOLERANCE:
            raise UsageError(f"the weights of a route must add up to 100%, not {total:.1%}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """A fleet: nodes, pools, and the routes to them."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = file_config(expert_parallel="ep", kv_bytes_per_s="kv_gbps")

    version: Whole = VERSION
    name: str
    note: str | None = None
    """Free text about the fleet, for example its author and purpose."""
    nodes: tuple[NodeGroup, ...]
    pools: tuple[Pool, ...]
    routes: tuple[Route, ...]
    shared_devices: tuple[SharedDevice, ...] = ()
    """Devices that several pools share. Replicas of all other pools have devices of their own."""

    def __post_init__(self) -> None:
        _words(name=self.name, **({} if self.note is None else {"note": self.note}))
        if self.version != VERSION:
            raise UsageError(f"the fleet file has version {self.version}; this Penstock reads only version {VERSION}")
        _check_conflicts(self)

    def machine_devices(self, pool: Pool) -> int | None:
        """Return the devices of the machines that hold a pool's replicas; None: usual nodes.

        A replica is placed on the smallest machines that hold it.
        """
        groups = [group for group in self.nodes if (group.accelerator, group.site) == (pool.accelerator, pool.site)]
        sizes = [group.node_devices for group in groups if group.node_devices is not None]
        return min((size for size in sizes if size >= pool.devices), default=None)

    def pool(self, name: str) -> Pool:
        """Return the pool with a name."""
        return next(pool for pool in self.pools if pool.name == name)


def _check_conflicts(fleet: Fleet) -> None:
    """Raise an error for the first conflict between entries that are each valid alone."""
    if not fleet.pools:
        raise FieldError("a fleet must have at least one pool", "pools")
    keys = {
        "nodes": [f"{group.accelerator} at {group.site}{_size(group)}" for group in fleet.nodes],
        "pools": [pool.name for pool in fleet.pools],
        "routes": [f"{r.workload} of {r.input_tokens} in and {r.output_tokens} out" for r in fleet.routes],
    }
    for kind, names in keys.items():
        for index, name in enumerate(names):
            if name in names[:index]:
                raise FieldError(f"'{name}' is listed twice; keep one", kind, index)
    _check_adapter_names(fleet.pools)
    _check_roles(fleet.pools)
    _check_feeds(fleet.pools)
    _check_addresses(fleet.pools)
    _check_routes(fleet)
    _check_shared_devices(fleet)


def _size(group: NodeGroup) -> str:
    return "" if group.node_devices is None else f", nodes of {group.node_devices}"


def _check_adapter_names(pools: Sequence[Pool]) -> None:
    """Raise an error if the name of an adapter is also the name of a model or of another model's adapter."""
    meant = {pool.model: pool.model for pool in pools}
    for index, pool in enumerate(pools):
        for adapter in pool.adapters:
            if meant.setdefault(adapter, f"an adapter of {pool.model}") != f"an adapter of {pool.model}":
                problem = f"adapter '{adapter}' is also {meant[adapter]}; give it a name of its own"
                raise FieldError(problem, "pools", index)


def _check_roles(pools: Sequence[Pool]) -> None:
    """Raise an error if the roles of a model's pools do not fit together.

    A model must have either only pools with the role `both`, or only prefill and decode pools. All three roles may be
    combined if each prefill pool names the decode pool it feeds.
    """
    for index, pool in enumerate(pools):
        same = [other for other in pools if other.model == pool.model]
        roles = {other.role for other in same}
        named = {"prefill", "decode"} <= roles and all(other.feeds for other in same if other.role == "prefill")
        if roles not in ({"both"}, {"prefill", "decode"}) and not named:
            has = " and ".join(sorted(roles))
            problem = f"{pool.model} has {has} pools; use the role `both` for every pool, or `prefill` and `decode`"
            raise FieldError(problem, "pools", index)


def _check_feeds(pools: Sequence[Pool]) -> None:
    decoding = {(pool.model, pool.name) for pool in pools if pool.role == "decode"}
    fed = {(pool.model, pool.feeds) for pool in pools if pool.feeds is not None}
    for index, pool in enumerate(pools):
        if pool.feeds is not None and (pool.model, pool.feeds) not in decoding:
            problem = f"feeds '{pool.feeds}', which is not a decode pool of {pool.model}; name one"
            raise FieldError(problem, "pools", index)
        others = any(model == pool.model for model, _ in fed)
        if pool.role == "decode" and others and (pool.model, pool.name) not in fed:
            problem = f"no prefill pool feeds '{pool.name}'; name it under `feeds` of a prefill pool"
            raise FieldError(problem, "pools", index)


def _check_addresses(pools: Sequence[Pool]) -> None:
    counts = Counter(address for pool in pools for address in pool.endpoints)
    for index, pool in enumerate(pools):
        for address in pool.endpoints:
            if counts[address] > 1:
                problem = f"endpoint {address} is listed {counts[address]} times; each replica must have its own"
                raise FieldError(problem, "pools", index)


def _check_routes(fleet: Fleet) -> None:
    names = [pool.name for pool in fleet.pools]
    fed = {pool.feeds for pool in fleet.pools if pool.feeds is not None}
    for index, route in enumerate(fleet.routes):
        for name in route.weights:
            if name not in names:
                raise FieldError(f"no pool is called '{name}'; the pools are {', '.join(names)}", "routes", index)
            if name in fed:
                raise FieldError(f"pool '{name}' only decodes; name its prefill pool instead", "routes", index)


def _check_shared_devices(fleet: Fleet) -> None:
    pools = {pool.name: pool for pool in fleet.pools}
    listed = Counter(name for device in fleet.shared_devices for name in device.pools)
    names = [device.name for device in fleet.shared_devices]
    for index, device in enumerate(fleet.shared_devices):
        problem = None
        if device.name in names[:index]:
            problem = f"two shared devices have the name '{device.name}'; give each a name of its own"
        for name in device.pools:
            if name not in pools:
                problem = f"no pool is called '{name}'; the pools are {', '.join(pools)}"
            elif listed[name] != pools[name].replicas:
                problem = (
                    f"pool '{name}' has {pools[name].replicas} replicas, but {listed[name]} shared devices list it"
                )
            elif pools[name].role != "both" or pools[name].split.pp * pools[name].split.dp > 1:
                problem = f"pool '{name}' cannot share devices; use `role: both`, pp 1 and dp 1"
        kinds = {(pools[name].accelerator, pools[name].split.tp) for name in device.pools if name in pools}
        if problem is None and len(kinds) > 1:
            problem = f"the pools of device '{device.name}' must have the same accelerator and the same tp"
        if problem is not None:
            raise FieldError(problem, "shared_devices", index)


def _words(**texts: str) -> None:
    for name, text in texts.items():
        if not text or text != text.strip() or not text.isprintable():
            raise UsageError(f"{name} is {text!r}; write one line of text without leading or trailing spaces")


def _at_least_one(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise UsageError(f"{name} is {count}; write 1 or more")
