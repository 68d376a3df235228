"""Defines a fleet: pools of identical replicas on nodes, and routes from requests to pools."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Final, Literal

from penstock.errors import UsageError
from penstock.fleet.engine_settings import EngineSetting, check_setting
from penstock.workload.slo import Slo

VERSION: Final = 1
"""Version of the file format."""
Role = Literal["both", "prefill", "decode"]
ROLES: Final[tuple[Role, ...]] = ("both", "prefill", "decode")
_List = Literal["nodes", "pools", "routes"]
Fault = tuple[_List, int, str]
"""List name, index in it from 0, and the problem."""

_ADDRESS: Final = re.compile(r"(?:[^\s/:\[\]]+|\[[0-9a-fA-F:.]+\]):\d{1,5}")
_SUM_TOLERANCE: Final = 0.005
_MAX_PORT: Final = 65_535


def address_problem(address: str) -> str | None:
    """Return the problem of an endpoint's address, or None if it is valid."""
    if _ADDRESS.fullmatch(address) is None:
        return f"'{address}' is not an address; write host:port, such as 10.0.0.1:8000"
    if not 1 <= int(address.rpartition(":")[2]) <= _MAX_PORT:
        return f"'{address}' has no port that can be connected to; write 1 to {_MAX_PORT}"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Nodes with the same accelerator at one site."""

    accelerator: str
    site: str
    nodes: int
    spare_nodes: int = 0
    """Number of these nodes that are spares."""

    def __post_init__(self) -> None:
        _words(accelerator=self.accelerator, site=self.site)
        _at_least_one(nodes=self.nodes)
        if not 0 <= self.spare_nodes <= self.nodes:
            raise UsageError(f"spare_nodes is {self.spare_nodes}; write 0 to {self.nodes}, the nodes there are")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A pool of identical replicas of one model."""

    name: str
    model: str
    adapters: tuple[str, ...] = ()
    """LoRA adapters of its replicas, by the names that requests use."""
    weights: str
    """Data type of most weight bytes."""
    kv: str
    accelerator: str
    vendor: str
    site: str
    replicas: int
    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: bool = False
    """Whether expert parallelism is on: whole experts are spread over the ranks."""
    drafted_tokens: int = 0
    """Tokens drafted per step by the checkpoint's own multi-token-prediction layers; 0: none."""
    engine: str
    engine_version: str
    settings: Mapping[str, EngineSetting] = field(default_factory=dict)
    """Engine settings at start, by the engine's own names."""
    role: Role = "both"
    feeds: str | None = None
    """For a prefill pool: the pool that receives its KV; None: any decode pool of the model."""
    kv_bytes_per_s: float | None = None
    """For a prefill pool: KV bytes per second of one replica; None: the links of one machine or rack."""
    usd_per_hour: float | None = None
    """US dollars per hour of one replica; None: unknown."""
    elastic: bool = False
    """Whether idle replicas are released. Only then does it save money to send requests elsewhere."""
    endpoints: tuple[str, ...] = ()
    """Addresses of replicas, host:port. An unlisted replica has no address yet."""

    def __post_init__(self) -> None:
        _words(name=self.name, model=self.model, weights=self.weights, kv=self.kv)
        _words(accelerator=self.accelerator, vendor=self.vendor, site=self.site)
        _words(engine=self.engine, engine_version=self.engine_version)
        _at_least_one(replicas=self.replicas, tp=self.tp, pp=self.pp, dp=self.dp)
        self._check_adapters()
        if self.drafted_tokens < 0:
            raise UsageError(f"drafted_tokens is {self.drafted_tokens}; write 0 or more")
        if self.role not in ROLES:
            raise UsageError(f"role '{self.role}' is not one of {', '.join(ROLES)}")
        self._check_sending()
        if self.usd_per_hour is not None and not (isfinite(self.usd_per_hour) and self.usd_per_hour >= 0):
            raise UsageError(f"usd_per_hour is {self.usd_per_hour:g}; write dollars, or leave it empty")
        if len(self.endpoints) > self.replicas:
            raise UsageError(f"{len(self.endpoints)} endpoints are more than its {self.replicas} replicas; remove some")
        for address in self.endpoints:
            if (problem := address_problem(address)) is not None:
                raise UsageError(problem)
        for key, value in self.settings.items():
            _words(setting=key, **({key: value} if isinstance(value, str) else {}))
            if isinstance(value, float) and not isfinite(value):
                raise UsageError(f"setting {key} is {value}; write a number that ends")
            check_setting(key, value)

    def _check_adapters(self) -> None:
        for adapter in self.adapters:
            _words(adapter=adapter)
        if len({self.model, *self.adapters}) <= len(self.adapters):
            raise UsageError("adapters: two have one name, or the model's own; each is asked for by a name of its own")

    def _check_sending(self) -> None:
        if self.role != "prefill" and (self.feeds is not None or self.kv_bytes_per_s is not None):
            raise UsageError(
                f"feeds and kv_gbps are of pools that prefill, not of one with role {self.role}; remove them"
            )
        if self.kv_bytes_per_s is not None and not (isfinite(self.kv_bytes_per_s) and self.kv_bytes_per_s > 0):
            raise UsageError(f"kv_gbps is {self.kv_bytes_per_s / 1e9:g}; write GB a second above 0, or leave it out")

    @property
    def devices(self) -> int:
        """Number of devices of one replica."""
        return self.tp * self.pp * self.dp


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A class of requests of similar length in a workload, its SLO, and the pools that serve it.

    A request belongs to the route with the nearest lengths, so every request has exactly one.
    """

    workload: str
    input_tokens: int
    output_tokens: int
    slo: Slo
    peak_requests_per_s: float
    weights: Mapping[str, float]
    """Share of these requests by pool name."""

    def __post_init__(self) -> None:
        _words(workload=self.workload)
        _at_least_one(input_tokens=self.input_tokens, output_tokens=self.output_tokens)
        if not (isfinite(self.peak_requests_per_s) and self.peak_requests_per_s > 0):
            raise UsageError(f"peak_requests_per_s is {self.peak_requests_per_s:g}; write a rate above 0")
        if not all(isfinite(weight) and weight > 0 for weight in self.weights.values()):
            raise UsageError("a weight is above 0; leave out a pool that takes nothing")
        total = sum(self.weights.values())
        if abs(total - 1) > _SUM_TOLERANCE:
            raise UsageError(f"weights add up to {total:.1%}; make them 100%")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """A fleet: nodes, pools, and the routes to them."""

    name: str
    nodes: tuple[NodeGroup, ...]
    pools: tuple[Pool, ...]
    routes: tuple[Route, ...]
    note: str | None = None
    """Free text, for example its author and purpose."""
    version: int = VERSION

    def __post_init__(self) -> None:
        _words(name=self.name, **({} if self.note is None else {"note": self.note}))
        if self.version != VERSION:
            raise UsageError(f"a fleet of version {self.version} cannot be read; this penstock reads {VERSION}")
        fault = fault_of(self.nodes, self.pools, self.routes)
        if fault is not None:
            kind, number, problem = fault
            raise UsageError(f"{kind} {number + 1}: {problem}")

    def pool(self, name: str) -> Pool:
        """Return the pool with a name."""
        return next(pool for pool in self.pools if pool.name == name)


def fault_of(nodes: Sequence[NodeGroup], pools: Sequence[Pool], routes: Sequence[Route]) -> Fault | None:
    """Return the first conflict between entries that are each valid, or None."""
    if not pools:
        return "pools", 0, "a fleet has at least one pool"
    keys: dict[_List, list[str]] = {
        "nodes": [f"{group.accelerator} at {group.site}" for group in nodes],
        "pools": [pool.name for pool in pools],
        "routes": [f"{r.workload} of {r.input_tokens} in and {r.output_tokens} out" for r in routes],
    }
    for kind, names in keys.items():
        for number, name in enumerate(names):
            if name in names[:number]:
                return kind, number, f"'{name}' is there twice; keep one"
    return (
        _two_meanings(pools)
        or _unpaired(pools)
        or _unfed(pools)
        or _shared_address(pools)
        or _unknown_pool(pools, routes)
    )


def _two_meanings(pools: Sequence[Pool]) -> Fault | None:
    """Return a fault if an adapter's name also means another model's adapter, or a model."""
    meant = {pool.model: pool.model for pool in pools}
    for number, pool in enumerate(pools):
        for adapter in pool.adapters:
            if meant.setdefault(adapter, f"an adapter of {pool.model}") != f"an adapter of {pool.model}":
                return "pools", number, f"adapter '{adapter}' is also {meant[adapter]}; give it a name of its own"
    return None


def _unpaired(pools: Sequence[Pool]) -> Fault | None:
    """Return a fault if a model's prefill and decode pools do not match.

    A model has only `both` pools, or prefill and decode pools. All three together are valid if each prefill pool names
    the pool it feeds.
    """
    for number, pool in enumerate(pools):
        same = [other for other in pools if other.model == pool.model]
        roles = {other.role for other in same}
        named = {"prefill", "decode"} <= roles and all(other.feeds for other in same if other.role == "prefill")
        if roles not in ({"both"}, {"prefill", "decode"}) and not named:
            has = " and ".join(sorted(roles))
            return "pools", number, f"{pool.model} has {has} pools; write both everywhere, or prefill and decode"
    return None


def _unfed(pools: Sequence[Pool]) -> Fault | None:
    decoding = {(pool.model, pool.name) for pool in pools if pool.role == "decode"}
    fed = {(pool.model, pool.feeds) for pool in pools if pool.feeds is not None}
    for number, pool in enumerate(pools):
        if pool.feeds is not None and (pool.model, pool.feeds) not in decoding:
            return "pools", number, f"feeds '{pool.feeds}', which is no pool of {pool.model} that decodes; name one"
        others = any(model == pool.model for model, _ in fed)
        if pool.role == "decode" and others and (pool.model, pool.name) not in fed:
            return "pools", number, f"nothing feeds '{pool.name}'; name it under `feeds` of a pool that prefills"
    return None


def _shared_address(pools: Sequence[Pool]) -> Fault | None:
    counts = Counter(address for pool in pools for address in pool.endpoints)
    for number, pool in enumerate(pools):
        for address in pool.endpoints:
            if counts[address] > 1:
                return "pools", number, f"endpoint {address} is there {counts[address]} times; a replica has its own"
    return None


def _unknown_pool(pools: Sequence[Pool], routes: Sequence[Route]) -> Fault | None:
    names = [pool.name for pool in pools]
    fed = {pool.feeds for pool in pools if pool.feeds is not None}
    for number, route in enumerate(routes):
        for name in route.weights:
            if name not in names:
                return "routes", number, f"no pool is called '{name}'; the pools are {', '.join(names)}"
            if name in fed:
                return "routes", number, f"'{name}' only decodes; send requests to the pool that feeds it"
    return None


def _words(**texts: str) -> None:
    for name, text in texts.items():
        if not text or text != text.strip() or not text.isprintable():
            raise UsageError(f"{name} is {text!r}; write one line without spaces around it")


def _at_least_one(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise UsageError(f"{name} is {count}; write 1 or more")
