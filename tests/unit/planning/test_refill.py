"""Nodes that are there may be filled anew, and load sent to those with room: never more is claimed than can be."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil, isclose

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.planning.optimizer.milp import Milp
from penstock.planning.optimizer.problem import Demand, Mix, Offer, PoolPeriod, Problem, ReplicaKind
from penstock.planning.optimizer.refill_nodes import Filling
from penstock.planning.optimizer.resize_fleet import Worlds, nodes_needed, one_world, resized_usd

law = settings(max_examples=200, deadline=None)
VENDORS = {"red": "amd", "green": "nvidia"}
rates = st.integers(5, 60).map(lambda tenths: tenths / 10)


def kind(name: str, accelerator: str, devices: int, *each: float, workload: str = "chat") -> ReplicaKind:
    served = {number: rate for number, rate in enumerate(each) if rate > 0}
    return ReplicaKind(id=name, accelerator=accelerator, workload=workload, devices=devices, requests_per_s=served)


def pool(
    accelerator: str, replicas: Mapping[str, int], load: Mapping[tuple[str, tuple[str, int]], float], **more: object
) -> PoolPeriod:
    offer = Offer(
        accelerator=accelerator,
        vendor=VENDORS[accelerator],
        site="site",
        devices=8,
        node_watts=1.0,
        rent_usd=(1.0,) * 2,
    )
    made = PoolPeriod(offer=offer, period=0, owned_nodes=0, rented_nodes=1, spare_nodes=0, replicas=replicas, load=load)
    return replace(made, **more)  # type: ignore[arg-type]


def problem_of(
    pools: Sequence[PoolPeriod], kinds: Sequence[ReplicaKind], *asked: float, workload: str = "chat"
) -> Problem:
    offers = {entry.offer.key: entry.offer for entry in pools}
    demands = tuple(
        Demand(key=(workload, number), requests_per_s=(rate, rate), tokens=1000) for number, rate in enumerate(asked)
    )
    return Problem(periods=2, offers=tuple(offers.values()), replicas=tuple(kinds), demands=demands)


def mix_of(*pools: PoolPeriod) -> Mix:
    return Mix(cost_usd=1.0, gap_fraction=0.0, seconds=0.0, pools=pools, purchases={})


@law
@given(
    sizes=st.sampled_from([(1, 2), (1, 4), (2, 4), (1, 8), (2, 8), (3, 2)]),
    each=st.tuples(rates, rates),
    asked=st.integers(1, 600),
    share=st.sampled_from([0.0, 0.3, 1.0]),
    more=st.floats(0.3, 3.0),
)
def test_one_workload_of_two_kinds_takes_as_few_devices_as_trying_every_number_of_them(
    sizes: tuple[int, int], each: tuple[float, float], asked: int, share: float, more: float
) -> None:
    kinds = [kind("a", "red", sizes[0], each[0]), kind("b", "red", sizes[1], each[1])]
    # A sliver of load on either says that both were simulated.
    split = {"a": min(max(share, 1e-9), 1 - 1e-9)}
    split["b"] = 1 - split["a"]
    only = pool("red", {"a": 3, "b": 2}, {(name, ("chat", 0)): part for name, part in split.items()})
    filling = Filling(problem_of([only], kinds, asked / 10), [only])
    found = float(filling.min_devices(only, {"chat": np.array([more])})[0])
    needed = asked / 10 * more
    best = min(
        count * sizes[0] + max(0, ceil((needed - count * each[0]) / each[1] - 1e-6)) * sizes[1]
        for count in range(ceil(needed / each[0]) + 1)
    )
    as_planned = sum(
        ceil(needed * split[name] / rate - 1e-6) * size for name, rate, size in zip("ab", each, sizes, strict=True)
    )
    assert found <= as_planned
    assert isclose(found, best)


def test_a_kind_that_cannot_serve_a_length_is_given_nothing_of_it() -> None:
    """`b` is better at what it serves; of the other length it has no rate, so it does not stand in for `a`."""
    kinds = [kind("a", "red", 1, 1.0, 1.0), kind("b", "red", 1, 9.0)]
    only = pool("red", {"a": 5, "b": 1}, {("a", ("chat", 0)): 0.5, ("a", ("chat", 1)): 1.0, ("b", ("chat", 0)): 0.5})
    filling = Filling(problem_of([only], kinds, 4.0, 3.0), [only])
    assert filling.min_devices(only, {"chat": np.ones(1)}).tolist() == [5 + 1]
    assert filling.min_devices(only, {"chat": np.full(1, 2.0)}).tolist() == [10 + 1]


def test_a_kind_of_another_period_may_serve_and_carries_the_least_it_was_seen_to() -> None:
    kinds = [kind("a", "red", 1, 1.0), kind("b", "red", 2, 2.4)]
    now = pool("red", {"a": 8}, {("a", ("chat", 0)): 1.0})
    later = pool("red", {"b": 4}, {("b", ("chat", 0)): 1.0}, period=1, carried={"b": 0.9})
    problem = problem_of([now, later], kinds, 8.0)
    more = {"chat": np.array([1.0, 1.07])}
    assert Filling(problem, [now]).min_devices(now, more).tolist() == [8, 9]
    # Four of 2.16 carry 8.64; nine of 1 carry 9.
    assert Filling(problem, [now, later]).min_devices(now, more).tolist() == [8, 8]


def test_kinds_nobody_simulated_fill_nodes_with_what_is_said_of_them_and_less_beside_another() -> None:
    """Six pairs carry 30 of 30.5; a single of 1 the rest. Of 0.55 beside others 0.85 is counted on: two, or a pair."""
    kinds = [kind("pair", "red", 2, 5.0), kind("one", "red", 1, 1.0), kind("weak", "red", 1, 0.55)]
    only = pool("red", {"pair": 7}, {("pair", ("chat", 0)): 1.0})
    problem = problem_of([only], kinds, 30.5)

    def taken(*instead: str) -> float:
        entry = replace(only, instead=dict.fromkeys(instead, 1.0))
        return float(Filling(problem, [entry]).min_devices(entry, {"chat": np.ones(1)})[0])

    assert taken() == 14
    assert taken("one") == 13
    assert taken("weak") == 14


def test_idle_devices_are_used_before_a_node_is_bought() -> None:
    """Three workloads on 8 devices: two idle singles of chat let half again as much of it be served."""
    kinds = [kind("pair", "red", 2, 2.0), kind("one", "red", 1, 1.0), kind("docs", "red", 1, 1.0, workload="docs")]
    only = pool("red", {"pair": 2, "one": 2, "docs": 2}, {("pair", ("chat", 0)): 1.0, ("docs", ("docs", 0)): 1.0})
    problem = problem_of([only], kinds, 4.0)
    docs = Demand(key=("docs", 0), requests_per_s=(2.0, 2.0), tokens=1000)
    problem = replace(problem, demands=(*problem.demands, docs))
    worlds = replace(one_world(), count=3, demand={("chat", 0): np.array([1.0, 1.4, 1.6])})
    nodes, enough = nodes_needed(mix_of(only), problem, worlds)
    assert enough.tolist() == [True, True, False]
    assert nodes.tolist() == [1, 1, 2]


ACCELERATORS = ("red", "green")


@st.composite
def shared_fleets(draw: st.DrawFn, lengths: int = 2) -> tuple[Mix, Problem, dict[str, float]]:
    """Two pools of one or two kinds each, random shares per length, and a factor on the capacity per accelerator."""
    kinds: list[ReplicaKind] = []
    pools: list[PoolPeriod] = []
    names = [(accelerator, number) for accelerator in ACCELERATORS for number in range(draw(st.integers(1, 2)))]
    asked = [draw(st.integers(5, 80)) / 10 for _ in range(lengths)]
    for accelerator, number in names:
        able_to = [0.7, 1.0, 1.9] if not kinds else [0.0, 0.7, 1.0, 1.9]
        each = [draw(st.sampled_from(able_to)) for _ in asked]
        kinds.append(kind(f"{accelerator}{number}", accelerator, number + 1, *each))
    shares: dict[tuple[str, tuple[str, int]], float] = {}
    for length in range(lengths):
        able = [entry.id for entry in kinds if entry.requests_per_s.get(length)]
        weights = [draw(st.integers(0, 3)) for _ in able]
        weights[0] += not sum(weights)
        for name, weight in zip(able, weights, strict=True):
            if weight:
                shares[name, ("chat", length)] = weight / sum(weights)
    for accelerator in ACCELERATORS:
        own = [entry.id for entry in kinds if entry.accelerator == accelerator]
        load = {key: share for key, share in shares.items() if key[0] in own}
        pools.append(pool(accelerator, {name: draw(st.integers(1, 9)) for name in own}, load))
    problem = replace(
        problem_of(pools, kinds, *asked),
        max_vendor_share=draw(st.sampled_from([None, None, 0.6])),
        share_of=draw(st.sampled_from(["load", "devices"])),
        min_vendors=draw(st.integers(1, 2)),
    )
    return mix_of(*pools), problem, {accelerator: draw(st.floats(0.5, 2.0)) for accelerator in ACCELERATORS}


def can_be_shared(mix: Mix, problem: Problem, factors: Mapping[str, float], *, ruled: bool) -> bool:
    """A linear program over every way to share each length, with the rules on vendors as rows."""
    milp, shares, weight = Milp(), {}, {entry.key: entry.requests_per_s[0] for entry in problem.demands}
    kinds = {entry.id: entry for entry in problem.replicas}
    devices: dict[str, list[tuple[int, float]]] = {"amd": [], "nvidia": []}
    load: dict[str, list[tuple[int, float]]] = {"amd": [], "nvidia": []}
    for entry in mix.pools:
        for name, count in entry.replicas.items():
            taken = []
            for key, rate in weight.items():
                each = kinds[name].requests_per_s.get(key[1], 0.0) * factors[entry.offer.accelerator]
                if each > 0:
                    variable = shares[name, key] = milp.variable(upper=1)
                    taken.append((variable, rate / each))
                    devices[entry.offer.vendor].append((variable, rate / each * kinds[name].devices))
                    load[entry.offer.vendor].append((variable, rate))
            milp.row(taken, at_most=count + 1e-4)
    for key in weight:
        milp.row([(variable, 1.0) for (_, asked), variable in shares.items() if asked == key], at_least=1, at_most=1)
    counted = devices if problem.share_of == "devices" else load
    for vendor, own in load.items() if ruled else ():
        if problem.max_vendor_share is not None:
            limit = problem.max_vendor_share + 1e-4
            every = [(variable, -amount * limit) for terms in counted.values() for variable, amount in terms]
            milp.row([*counted[vendor], *every], at_most=0)
        if problem.min_vendors > 1:
            milp.row(own, at_least=(problem.min_vendor_share - 1e-4) * sum(weight.values()))
    return milp.solve(gap_fraction=0.0, search_nodes=1) is not None


@law
@given(fleet=shared_fleets())
def test_no_sharing_is_called_enough_that_a_linear_program_does_not_find(
    fleet: tuple[Mix, Problem, dict[str, float]],
) -> None:
    mix, problem, factors = fleet
    mix = mix_of(*(replace(entry, rented_nodes=0) for entry in mix.pools))
    # Without nodes no pool is enough by itself: what is left is what they carry together.
    _, enough = nodes_needed(mix, problem, one_world(factors))
    if enough[0]:
        assert can_be_shared(mix, problem, factors, ruled=True)


@law
@given(fleet=shared_fleets(lengths=1))
def test_of_one_length_and_without_rules_every_sharing_that_is_enough_is_called_so(
    fleet: tuple[Mix, Problem, dict[str, float]],
) -> None:
    mix, problem, factors = fleet
    problem = replace(problem, max_vendor_share=None, min_vendors=1)
    mix = mix_of(*(replace(entry, rented_nodes=0) for entry in mix.pools))
    _, enough = nodes_needed(mix, problem, one_world(factors))
    slower = {accelerator: factor * (1 - 1e-3) for accelerator, factor in factors.items()}
    assert enough[0] or not can_be_shared(mix, problem, slower, ruled=False)


def test_a_mix_whose_vendors_are_off_in_opposite_ways_has_the_nodes_it_needs() -> None:
    """Half the load each, just right: a fifth less of one and a fifth more of the other is the same in sum."""
    kinds = [kind("r", "red", 1, 1.0), kind("g", "green", 1, 1.0)]
    pools = [
        pool(accelerator, {name: 8}, {(name, ("chat", 0)): 0.5})
        for accelerator, name in zip(ACCELERATORS, "rg", strict=True)
    ]
    problem = problem_of(pools, kinds, 16.0)
    factors = {"red": np.array([1.0, 0.8, 0.8]), "green": np.array([1.0, 1.2, 1.1])}
    worlds = Worlds(count=3, capacity=factors, bought_usd={}, rented_usd={})
    nodes, enough = nodes_needed(mix_of(*pools), problem, worlds)
    assert enough.tolist() == [True, True, False]
    assert nodes.tolist() == [2, 2, 3]
    assert resized_usd(mix_of(*pools), problem, worlds).tolist() == [2, 2, 3]
    # At most 55% with one vendor: 9.6 of 16 would be 60%.
    _, ruled = nodes_needed(mix_of(*pools), replace(problem, max_vendor_share=0.55), worlds)
    assert ruled.tolist() == [True, False, False]
    # Of devices each has half however the load is shared.
    by_devices = replace(problem, max_vendor_share=0.55, share_of="devices")
    assert nodes_needed(mix_of(*pools), by_devices, worlds)[1].tolist() == [True, True, False]


@law
@given(fleet=shared_fleets(), other=st.tuples(st.floats(0.5, 2.0), st.floats(0.5, 2.0)))
def test_more_capacity_never_takes_more_nodes(
    fleet: tuple[Mix, Problem, dict[str, float]], other: tuple[float, float]
) -> None:
    mix, problem, factors = fleet
    problem = replace(problem, max_vendor_share=None, min_vendors=1)
    low = {accelerator: min(factors[accelerator], each) for accelerator, each in zip(ACCELERATORS, other, strict=True)}
    high = {accelerator: max(factors[accelerator], each) for accelerator, each in zip(ACCELERATORS, other, strict=True)}
    (before, was), (after, now) = (nodes_needed(mix, problem, one_world(at)) for at in (low, high))
    assert after[0] <= before[0] or was[0]
    assert now[0] or not was[0] or len(problem.demands) > 1
