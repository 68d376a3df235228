"""What is a fleet? Pools of identical replicas on nodes, and routes that say which requests go to which pool."""

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
"""Of the file format."""
Role = Literal["both", "prefill", "decode"]
ROLES: Final[tuple[Role, ...]] = ("both", "prefill", "decode")
_List = Literal["nodes", "pools", "routes"]
Fault = tuple[_List, int, str]
"""Which list, the place in it from 0, and what is wrong."""

_ADDRESS: Final = re.compile(r"(?:[^\s/:\[\]]+|\[[0-9a-fA-F:.]+\]):\d{1,5}")
_SUM_TOLERANCE: Final = 0.005
_MAX_PORT: Final = 65_535


def address_problem(address: str) -> str | None:
    """Say what is wrong with an endpoint's address; None where nothing is."""
    if _ADDRESS.fullmatch(address) is None:
        return f"'{address}' is not an address; write host:port, such as 10.0.0.1:8000"
    if not 1 <= int(address.rpartition(":")[2]) <= _MAX_PORT:
        return f"'{address}' has no port that can be connected to; write 1 to {_MAX_PORT}"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Nodes of one accelerator at one site."""

    accelerator: str
    site: str
    nodes: int
    spare_nodes: int = 0
    """Of them, the ones that stand by."""

    def __post_init__(self) -> None:
        _words(accelerator=self.accelerator, site=self.site)
        _at_least_one(nodes=self.nodes)
        if not 0 <= self.spare_nodes <= self.nodes:
            raise UsageError(f"spare_nodes is {self.spare_nodes}; write 0 to {self.nodes}, the nodes there are")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Identical replicas of one model."""

    name: str
    model: str
    adapters: tuple[str, ...] = ()
    """LoRA adapters its replicas have, by the names requests ask for them with."""
    weights: str
    """The format most weight bytes are in."""
    kv: str
    accelerator: str
    vendor: str
    site: str
    replicas: int
    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: bool = False
    """Whether whole experts are spread over the ranks."""
    drafted_tokens: int = 0
    """What a step drafts with the checkpoint's own multi-token-prediction layers; 0 is nothing."""
    engine: str
    engine_version: str
    settings: Mapping[str, EngineSetting] = field(default_factory=dict)
    """What the engine is started with, by the engine's own names."""
    role: Role = "both"
    feeds: str | None = None
    """Of a pool that prefills: the pool its KV goes to; None where any pool of the model that decodes will do."""
    kv_bytes_per_s: float | None = None
    """Of a pool that prefills: what one replica sends KV at; None is the links of one machine or rack."""
    usd_per_hour: float | None = None
    """Of one replica; None where nobody knows."""
    elastic: bool = False
    """Whether somebody gives replicas without work back: only then does it save dollars to send requests elsewhere."""
    endpoints: tuple[str, ...] = ()
    """Where replicas answer, host:port; one that is not listed has no address yet."""

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
        """Devices of one replica."""
        return self.tp * self.pp * self.dp


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Requests of a workload of about one length, what they are promised, and the pools they are sent to.

    A request belongs to the route whose lengths are nearest to its own, so that every request has one.
    """

    workload: str
    input_tokens: int
    output_tokens: int
    slo: Slo
    peak_requests_per_s: float
    weights: Mapping[str, float]
    """Pool name to the share of these requests it is given."""

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
    """What runs, where, and who is sent there."""

    name: str
    nodes: tuple[NodeGroup, ...]
    pools: tuple[Pool, ...]
    routes: tuple[Route, ...]
    note: str | None = None
    """Who chose it, and for what."""
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
        """Find a pool by its name."""
        return next(pool for pool in self.pools if pool.name == name)


def fault_of(nodes: Sequence[NodeGroup], pools: Sequence[Pool], routes: Sequence[Route]) -> Fault | None:
    """Find what is wrong between entries that are each right; None where nothing is."""
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
    """One name asks for one thing: an adapter of two models, or one called as a model is, would be either."""
    meant = {pool.model: pool.model for pool in pools}
    for number, pool in enumerate(pools):
        for adapter in pool.adapters:
            if meant.setdefault(adapter, f"an adapter of {pool.model}") != f"an adapter of {pool.model}":
                return "pools", number, f"adapter '{adapter}' is also {meant[adapter]}; give it a name of its own"
    return None


def _unpaired(pools: Sequence[Pool]) -> Fault | None:
    """Prompts go from pools that prefill to pools that decode; beside pools that do both, it is said to which."""
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
