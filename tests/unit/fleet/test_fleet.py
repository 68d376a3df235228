"""A fleet that contradicts itself cannot be made."""

from dataclasses import replace

import pytest

from penstock.errors import UsageError
from penstock.fleet.deployment import Parallelism
from penstock.fleet.pools import Fleet, NodeGroup, Pool, PoolEngine, Route
from penstock.workload.slo import Slo

POOL = Pool(
    name="one",
    model="llama-3.1-8b",
    weights="bf16",
    kv="bf16",
    accelerator="mi300x",
    vendor="amd",
    site="main",
    replicas=2,
    split=Parallelism(tp=2),
    engine=PoolEngine(name="vllm", version="0.31"),
)
ROUTE = Route(
    workload="chat",
    input_tokens=1024,
    output_tokens=256,
    slo=Slo(ttft_s=1.0, tpot_s=0.05),
    peak_requests_per_s=3.0,
    weights={"one": 1.0},
)
FLEET = Fleet(
    name="small",
    nodes=(NodeGroup(accelerator="mi300x", site="main", nodes=1),),
    pools=(POOL,),
    routes=(ROUTE,),
)


def test_a_replica_is_all_its_ranks() -> None:
    assert replace(POOL, split=Parallelism(tp=4, pp=2, dp=3)).devices == 4 * 2 * 3
    assert FLEET.pool("one") is POOL


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"replicas": 0}, "replicas is 0; write 1 or more"),
        ({"name": " one"}, "one line of text without leading or trailing spaces"),
        ({"site": ""}, "site is ''"),
        ({"model": "two\nlines"}, "model is 'two.+nlines'; write one line"),
        ({"role": "neither"}, "not one of both, prefill, decode"),
        ({"usd_per_hour": -1.0}, "write dollars"),
        ({"usd_per_hour": float("nan")}, "write dollars"),
        ({"endpoints": ("a:1", "b:1", "c:1")}, "3 endpoints but only 2 replicas"),
        ({"endpoints": ("no port",)}, "write host:port"),
        ({"adapters": ("sql", "sql")}, "two adapters have the same name"),
        ({"adapters": (POOL.model,)}, "or an adapter has the model's name"),
    ],
)
def test_a_pool_refuses_what_cannot_run(change: dict[str, object], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        replace(POOL, **change)  # type: ignore[arg-type]  # wrong on purpose


def test_an_engine_setting_is_a_finite_number() -> None:
    with pytest.raises(UsageError, match="a finite number"):
        PoolEngine(name="vllm", version="0.31", settings={"max_num_seqs": float("inf")})


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"peak_requests_per_s": 0.0}, "a rate above 0"),
        ({"input_tokens": 0}, "input_tokens is 0"),
        ({"weights": {"one": 0.5}}, "must add up to 100%, not 50.0%"),
        ({"weights": {"one": 1.5, "two": -0.5}}, "above 0"),
        ({"weights": {}}, "must add up to 100%, not 0.0%"),
    ],
)
def test_a_route_sends_all_of_something_somewhere(change: dict[str, object], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        replace(ROUTE, **change)  # type: ignore[arg-type]  # wrong on purpose


PREFILL = replace(POOL, name="two", role="prefill")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"pools": ()}, "at least one pool"),
        ({"pools": (POOL, POOL)}, "pools 2: 'one' is listed twice"),
        ({"routes": (ROUTE, ROUTE)}, "routes 2: 'chat of 1024 in and 256 out' is listed twice"),
        ({"nodes": (FLEET.nodes[0], FLEET.nodes[0])}, "nodes 2: 'mi300x at main' is listed twice"),
        ({"routes": (replace(ROUTE, weights={"other": 1.0}),)}, "no pool is called 'other'; the pools are one"),
        ({"pools": (POOL, PREFILL)}, "has both and prefill pools"),
        ({"pools": (PREFILL,), "routes": ()}, "has prefill pools"),
        ({"version": 2}, "this Penstock reads only version 1"),
        (
            {"pools": (replace(POOL, adapters=("sql",)), replace(POOL, name="two", model="b", adapters=("sql",)))},
            "pools 2: adapter 'sql' is also an adapter of",
        ),
        (
            {"pools": (replace(POOL, adapters=("b",)), replace(POOL, name="two", model="b"))},
            "pools 1: adapter 'b' is also b; give it a name of its own",
        ),
        (
            {"pools": (replace(POOL, endpoints=("a:1",)), replace(POOL, name="two", endpoints=("a:1",)))},
            "endpoint a:1 is listed 2 times",
        ),
    ],
)
def test_a_fleet_hangs_together(change: dict[str, object], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        replace(FLEET, **change)  # type: ignore[arg-type]  # wrong on purpose


AHEAD = replace(PREFILL, feeds="three", kv_bytes_per_s=4e11)
AFTER = replace(POOL, name="three", role="decode")


def test_pools_apart_may_stand_beside_pools_that_do_both_where_it_is_said_who_feeds_whom() -> None:
    assert len(replace(FLEET, pools=(POOL, AHEAD, AFTER)).pools) == 3


@pytest.mark.parametrize(
    ("pools", "complaint"),
    [
        ((POOL, replace(AHEAD, feeds=None), AFTER), "has both and decode and prefill pools"),
        ((POOL, replace(AHEAD, feeds="one"), AFTER), "pools 2: feeds 'one', which is not a decode pool of"),
        ((POOL, AHEAD, AFTER, replace(AFTER, name="four")), "pools 4: no prefill pool feeds 'four'"),
        ((replace(AHEAD, name="two"), replace(AFTER, name="three")), "no pool is called 'one'"),
    ],
)
def test_kv_goes_to_a_pool_that_decodes(pools: tuple[Pool, ...], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        replace(FLEET, pools=pools)


def test_requests_are_sent_to_the_pool_that_prefills() -> None:
    sent = replace(ROUTE, weights={"three": 1.0})
    with pytest.raises(UsageError, match="pool 'three' only decodes; name its prefill pool instead"):
        replace(FLEET, pools=(AHEAD, AFTER), routes=(sent,))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"role": "both"}, "this pool's role is both"),
        ({"kv_bytes_per_s": 0.0}, "kv_gbps is 0; write a rate above 0 in GB per second"),
    ],
)
def test_only_a_pool_that_prefills_sends_kv(change: dict[str, object], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        replace(AHEAD, **change)  # type: ignore[arg-type]  # wrong on purpose


def test_one_model_may_serve_whole_requests_while_another_is_split_in_two() -> None:
    other = replace(POOL, name="prefill", model="llama-3.1-70b", role="prefill")
    decode = replace(other, name="decode", role="decode")
    assert len(replace(FLEET, pools=(POOL, other, decode)).pools) == 3
