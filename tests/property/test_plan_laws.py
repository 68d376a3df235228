"""What must hold for every fleet the planner proposes; each test's name is the law."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from math import ceil, inf, isclose

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from penstock.planning.optimizer.cheapest_mix import cheapest, runners_up
from penstock.planning.optimizer.fill_nodes import fill_nodes
from penstock.planning.optimizer.load_balance import balance_load
from penstock.planning.optimizer.problem import (
    MIN_VENDOR_SHARE,
    Demand,
    Mix,
    Offer,
    PoolPeriod,
    Problem,
    ReplicaKind,
    Restriction,
    Tier,
)
from penstock.planning.optimizer.resize_fleet import one_world, resized_usd

optimal = settings(max_examples=150, deadline=None)
law = settings(max_examples=60, deadline=None)
many = settings(max_examples=300, deadline=None)
DEVICES, MOST = 2, 2
money = st.integers(1, 400).map(lambda value: value * 1000.0)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Two accelerators of two vendors, nodes of two devices, at most two nodes of each, one or two lengths.

    One of the accelerators may also be rented in instances of one device.
    """
    ruled = draw(st.booleans())
    lengths = 1 if ruled else draw(st.integers(1, 2))
    offers, replicas = [], []
    for name, vendor in (("red", "amd"), ("green", "nvidia")):
        first = draw(money)
        tiers = [Tier(min_devices=0, node_usd=(first,))]
        if draw(st.booleans()):
            tiers.append(Tier(min_devices=2 * DEVICES, node_usd=(first * draw(st.sampled_from([0.5, 0.9])),)))
        offers.append(
            Offer(
                accelerator=name,
                vendor=vendor,
                site="site",
                devices=DEVICES,
                node_watts=draw(st.sampled_from([5000.0, 8000.0])),
                tiers=tuple(tiers) if draw(st.integers(0, 4)) else (),
                rent_usd=(draw(money),) if draw(st.booleans()) else None,
            )
        )
        for size in draw(st.sampled_from([(1,), (2,), (1, 2)])):
            rates = {number: draw(st.integers(0, 40)) / 10 for number in range(lengths)}
            replicas.append(
                ReplicaKind(
                    id=f"{name}{size}",
                    accelerator=name,
                    workload="chat",
                    devices=size,
                    requests_per_s={number: rate for number, rate in rates.items() if rate > 0},
                )
            )
    if draw(st.booleans()):
        node = draw(st.sampled_from(offers))
        rent = draw(money) if node.rent_usd is None else node.rent_usd[0] / DEVICES
        offers.append(
            Offer(
                accelerator=node.accelerator,
                vendor=node.vendor,
                site="site",
                devices=1,
                node_watts=node.node_watts / DEVICES,
                unit="x1",
                nodes_per_unit=1 / DEVICES,
                max_replica_devices=1,
                rent_usd=(rent,),
            )
        )
    demands = [
        Demand(key=("chat", number), requests_per_s=(draw(st.integers(1, 60)) / 10,), tokens=1000)
        for number in range(lengths)
    ]
    return Problem(
        periods=1,
        offers=tuple(offers),
        replicas=tuple(replicas),
        demands=tuple(demands),
        vendor_usd={"amd": (draw(money),)} if draw(st.booleans()) else {},
        site_watts={"site": draw(st.sampled_from([12_000.0, 20_000.0]))} if draw(st.booleans()) else {},
        max_nodes={"red": MOST, "green": MOST},
        spare_nodes=draw(st.integers(0, 1)),
        utilisation_fraction=draw(st.sampled_from([1.0, 0.8])),
        min_vendors=draw(st.integers(1, 2)) if ruled else 1,
        max_vendor_share=draw(st.sampled_from([None, 0.7])) if ruled else None,
    )


def brute_force(problem: Problem) -> float:
    """Try every number of owned and rented nodes and every set of replicas; no solver, no linear program."""
    best = inf
    placements = [list(_placements(problem, offer)) for offer in problem.offers]
    for chosen in product(*placements):
        pairs = list(zip(problem.offers, chosen, strict=True))
        if sum(owned * offer.node_watts for offer, (owned, _, _) in pairs) > problem.site_watts.get("site", inf):
            continue
        held: dict[str, float] = {}
        for offer, (owned, rented, _) in pairs:
            held[offer.accelerator] = held.get(offer.accelerator, 0.0) + (owned + rented) * offer.nodes_per_unit
        if any(nodes > problem.max_nodes[accelerator] for accelerator, nodes in held.items()):
            continue
        usd = sum(_nodes_usd(offer, owned, rented) for offer, (owned, rented, _) in pairs)
        for vendor in {offer.vendor for offer, (_, _, counts) in pairs if any(counts.values())}:
            usd += problem.vendor_usd.get(vendor, (0.0,))[0]
        together = Counter[str]()
        for _, _, counts in chosen:
            together.update(counts)
        if usd < best and _serves(problem, together):
            best = usd
    return best


def _placements(problem: Problem, offer: Offer) -> Iterator[tuple[int, int, Mapping[str, int]]]:
    own = [replica for replica in problem.replicas if offer.holds(replica)]
    most = round(MOST / offer.nodes_per_unit)
    for owned, rented in product(range(most + 1), repeat=2):
        nodes = owned + rented
        if nodes > most or _nodes_usd(offer, owned, rented) == inf:
            continue
        for counts in product(*(range(nodes * offer.devices // replica.devices + 1) for replica in own)):
            taken = sum(count * replica.devices for count, replica in zip(counts, own, strict=True))
            spare = problem.spare_nodes if taken else 0
            if taken <= offer.devices * (nodes - spare):
                yield owned, rented, {replica.id: count for count, replica in zip(counts, own, strict=True)}


def _nodes_usd(offer: Offer, owned: int, rented: int) -> float:
    rent = rented * offer.rent_usd[0] if offer.rent_usd is not None else (inf if rented else 0.0)
    levels = [owned * tier.node_usd[0] for tier in offer.tiers if owned * DEVICES >= tier.min_devices]
    return rent + (min(levels, default=inf) if owned else 0.0)


def _serves(problem: Problem, counts: Mapping[str, int]) -> bool:
    """Whether shares of each length exist: by comparative advantage for two lengths, by vendor for one."""
    machines = [(r, counts[r.id] * problem.utilisation_fraction) for r in problem.replicas if counts[r.id]]
    if len(problem.demands) == 1:
        wanted = problem.demands[0].requests_per_s[0]
        limit = (problem.max_vendor_share or 1.0) * wanted
        vendor = {offer.accelerator: offer.vendor for offer in problem.offers}
        carried: dict[str, float] = {}
        for replica, time in machines:
            name = vendor[replica.accelerator]
            carried[name] = carried.get(name, 0.0) + time * replica.requests_per_s.get(0, 0.0)
        capped = [min(rate, limit) for rate in carried.values()]
        counted = sum(rate >= MIN_VENDOR_SHARE * wanted - 1e-9 for rate in capped)
        return sum(capped) >= wanted - 1e-9 and (problem.min_vendors == 1 or counted >= problem.min_vendors)
    left, other = (demand.requests_per_s[0] for demand in problem.demands)
    served = 0.0
    for replica, time in sorted(machines, key=lambda entry: -_advantage(entry[0])):
        first, second = (replica.requests_per_s.get(number, 0.0) for number in (0, 1))
        used = min(time, left / first) if first else 0.0
        left -= used * first
        served += (time - used) * second
    return left <= 1e-9 and served >= other - 1e-9


def _advantage(replica: ReplicaKind) -> float:
    first, second = (replica.requests_per_s.get(number, 0.0) for number in (0, 1))
    return first / second if second else (inf if first else 0.0)


@optimal
@given(problem=problems())
def test_no_enumerated_fleet_is_cheaper_and_none_is_missed(problem: Problem) -> None:
    found, best = cheapest(problem, gap_fraction=0.0), brute_force(problem)
    if found is None:
        assert best == inf
    else:
        assert isclose(found.cost_usd, best, rel_tol=1e-6), (found.cost_usd, best)


@optimal
@given(problem=problems())
def test_every_rule_holds_in_the_answer(problem: Problem) -> None:
    found = cheapest(problem)
    assume(found is not None)
    assert found is not None
    keeps_the_rules(problem, found)


def keeps_the_rules(problem: Problem, mix: Mix) -> None:
    replicas = {replica.id: replica for replica in problem.replicas}
    for period in range(problem.periods):
        pools = [pool for pool in mix.pools if pool.period == period]
        for demand in problem.demands:
            shares = [share for pool in pools for (_, key), share in pool.load.items() if key == demand.key]
            assert isclose(sum(shares), 1, abs_tol=1e-6)
        for pool in pools:
            taken = sum(replicas[name].devices * count for name, count in pool.replicas.items())
            left = (pool.nodes - pool.spare_nodes) * pool.offer.devices - taken
            assert left >= 0
            assert not any(replicas[name].devices <= left for name, _ in pool.load), "a paid device stands empty"
            assert not pool.replicas or pool.spare_nodes == problem.spare_nodes
            for name, count in pool.replicas.items():
                busy = sum(
                    share * demand.requests_per_s[period] / replicas[name].requests_per_s[demand.key[1]]
                    for demand in problem.demands
                    for (own, key), share in pool.load.items()
                    if own == name and key == demand.key
                )
                assert busy <= count * problem.utilisation_fraction + 1e-6
        for accelerator, limit in problem.max_nodes.items():
            assert mix.nodes_of(accelerator, period) <= limit
        for site, watts in problem.site_watts.items():
            assert sum(p.owned_nodes * p.offer.node_watts for p in pools if p.offer.site == site) <= watts + 1e-6
    vendors_hold(problem, mix)


def vendors_hold(problem: Problem, mix: Mix) -> None:
    whole = sum(demand.requests_per_s[0] * demand.tokens for demand in problem.demands)
    weight = {demand.key: demand.requests_per_s[0] * demand.tokens for demand in problem.demands}
    carried: dict[str, float] = {}
    for pool in (pool for pool in mix.pools if pool.period == 0):
        for (_, key), share in pool.load.items():
            carried[pool.offer.vendor] = carried.get(pool.offer.vendor, 0.0) + share * weight[key]
    if problem.max_vendor_share is not None:
        assert max(carried.values()) <= problem.max_vendor_share * whole + 1e-6
    if problem.min_vendors > 1:
        assert sum(load >= MIN_VENDOR_SHARE * whole - 1e-6 for load in carried.values()) >= problem.min_vendors


@law
@given(problem=problems())
def test_a_runner_up_is_never_cheaper_and_never_uses_all_parts_of_a_fleet_before_it(problem: Problem) -> None:
    first = cheapest(problem, gap_fraction=0.0)
    assume(first is not None)
    assert first is not None
    seen = [first]
    for following in runners_up(problem, first, count=2, gap_fraction=0.0):
        assert following.cost_usd >= seen[-1].cost_usd * (1 - 1e-9)
        assert not any(before.support <= following.support for before in seen)
        keeps_the_rules(problem, following)
        seen.append(following)


@law
@given(problem=problems(), red=st.floats(0.5, 2.0), green=st.floats(0.5, 2.0))
def test_resizing_gives_a_fleet_that_works_and_never_beats_the_optimum(
    problem: Problem, red: float, green: float
) -> None:
    first = cheapest(problem, gap_fraction=0.0)
    assume(first is not None)
    assert first is not None
    assert isclose(float(resized_usd(first, problem, one_world())[0]), first.cost_usd, rel_tol=1e-6)
    factors = {"red": red, "green": green}
    worlds = one_world(factors)
    faster = replace(
        problem,
        replicas=tuple(
            replace(r, requests_per_s={key: rate * factors[r.accelerator] for key, rate in r.requests_per_s.items()})
            for r in problem.replicas
        ),
    )
    again = cheapest(faster, gap_fraction=0.0)
    resized = float(resized_usd(first, problem, worlds)[0])
    assert resized == inf or again is not None
    if again is not None:
        assert resized >= again.cost_usd * (1 - 1e-6)


@law
@given(problem=problems(), more=st.floats(1.0, 3.0), which=st.integers(0, 1))
def test_a_higher_price_never_makes_the_cheapest_fleet_cheaper(problem: Problem, more: float, which: int) -> None:
    dearer = replace(
        problem,
        offers=tuple(
            offer
            if number != which
            else replace(
                offer,
                tiers=tuple(replace(tier, node_usd=tuple(usd * more for usd in tier.node_usd)) for tier in offer.tiers),
            )
            for number, offer in enumerate(problem.offers)
        ),
    )
    before, after = cheapest(problem, gap_fraction=0.0), cheapest(dearer, gap_fraction=0.0)
    assert (before is None) == (after is None)
    if before is not None and after is not None:
        assert after.cost_usd >= before.cost_usd * (1 - 1e-9)


@many
@given(problem=problems(), more=st.floats(1.0, 2.0))
def test_cost_never_falls_as_demand_rises(problem: Problem, more: float) -> None:
    demands = tuple(
        replace(demand, requests_per_s=tuple(rate * more for rate in demand.requests_per_s))
        for demand in problem.demands
    )
    before, after = cheapest(problem, gap_fraction=0.0), cheapest(replace(problem, demands=demands), gap_fraction=0.0)
    if after is not None:
        assert before is not None
        assert after.cost_usd >= before.cost_usd * (1 - 1e-6)


@many
@given(problem=problems(), taken=st.integers(0, 3))
def test_an_added_option_never_raises_the_cost(problem: Problem, taken: int) -> None:
    kept = problem.replicas[:taken] + problem.replicas[taken + 1 :]
    fewer, every = cheapest(replace(problem, replicas=kept), gap_fraction=0.0), cheapest(problem, gap_fraction=0.0)
    if fewer is not None:
        assert every is not None
        assert every.cost_usd <= fewer.cost_usd * (1 + 1e-6)


@many
@given(problem=problems(), rule=st.sampled_from(["spare_nodes", "min_vendors", "max_vendor_share", "site_watts"]))
def test_an_added_rule_never_lowers_the_cost(problem: Problem, rule: str) -> None:
    free: dict[str, object] = {"spare_nodes": 0, "min_vendors": 1, "max_vendor_share": None, "site_watts": {}}
    looser = replace(problem, **{rule: free[rule]})  # type: ignore[arg-type]
    ruled, without = cheapest(problem, gap_fraction=0.0), cheapest(looser, gap_fraction=0.0)
    if ruled is not None:
        assert without is not None
        assert ruled.cost_usd >= without.cost_usd * (1 - 1e-6)


@law
@given(problem=problems())
def test_one_vendor_alone_never_beats_the_free_choice(problem: Problem) -> None:
    free = cheapest(problem, gap_fraction=0.0)
    for vendor in ("amd", "nvidia"):
        alone = cheapest(problem, Restriction(only_vendors=frozenset({vendor})), gap_fraction=0.0)
        if alone is not None:
            assert free is not None
            assert alone.vendors == {vendor}
            assert alone.cost_usd >= free.cost_usd * (1 - 1e-9)


@law
@given(
    rate=st.integers(1, 30),
    growth=st.integers(0, 30),
    buy=st.integers(100, 900),
    rent=st.integers(20, 400),
    first=st.integers(0, 1),
)
def test_two_periods_equal_trying_every_purchase_and_rental(
    rate: int, growth: int, buy: int, rent: int, first: int
) -> None:
    """One accelerator from `first` on, and one that can always be rented: nodes of one device, one replica each."""
    wanted = (rate / 10, (rate + growth) / 10)
    problem = Problem(
        periods=2,
        offers=(
            Offer(
                accelerator="new",
                vendor="amd",
                site="site",
                devices=1,
                node_watts=1,
                tiers=(Tier(min_devices=0, node_usd=(buy, buy * 0.6)),),
                first_period=first,
            ),
            Offer(accelerator="old", vendor="nvidia", site="site", devices=1, node_watts=1, rent_usd=(rent, rent)),
        ),
        replicas=(
            ReplicaKind(id="n", accelerator="new", workload="chat", devices=1, requests_per_s={0: 1.0}),
            ReplicaKind(id="o", accelerator="old", workload="chat", devices=1, requests_per_s={0: 0.5}),
        ),
        demands=(Demand(key=("chat", 0), requests_per_s=wanted, tokens=1),),
    )
    best = inf
    for now, later in product(range(ceil(wanted[1]) + 1), repeat=2):
        if first and now:
            continue
        have = (now, now + later)
        rented = [ceil(max(0.0, need - own) / 0.5 - 1e-9) for need, own in zip(wanted, have, strict=True)]
        best = min(best, now * buy + later * buy * 0.6 + sum(rented) * rent)
    found = cheapest(problem, gap_fraction=0.0)
    assert found is not None
    assert isclose(found.cost_usd, best, rel_tol=1e-6)
    assert np.isfinite(found.cost_usd)


@law
@given(problem=problems())
def test_requests_shared_out_anew_are_all_served_by_replicas_that_are_no_busier(problem: Problem) -> None:
    mix = cheapest(problem)
    assume(mix is not None)
    assert mix is not None
    even = balance_load(mix, problem)
    assert even.cost_usd == mix.cost_usd
    assert [pool.replicas for pool in even.pools] == [pool.replicas for pool in mix.pools]
    for demand in problem.demands:
        served = sum(share for pool in even.pools for (_, key), share in pool.load.items() if key == demand.key)
        assert isclose(served, 1, abs_tol=1e-5)
    assert _busiest(even, problem) <= _busiest(mix, problem) + 1e-5
    for vendor in mix.vendors:
        before, after = _carried_by(mix, problem, vendor), _carried_by(even, problem, vendor)
        assert problem.min_vendors == 1 or after >= min(before, MIN_VENDOR_SHARE) - 1e-5
        assert after <= max(before, problem.max_vendor_share or 1.0) + 1e-5


def _busiest(mix: Mix, problem: Problem) -> float:
    return max(problem.busy_share(pool, name) for pool in mix.pools for name in pool.replicas)


def _carried_by(mix: Mix, problem: Problem, vendor: str) -> float:
    weight = {demand.key: demand.requests_per_s[0] * demand.tokens for demand in problem.demands}
    own = [pool for pool in mix.pools if pool.offer.vendor == vendor]
    return sum(share * weight[key] for pool in own for (_, key), share in pool.load.items()) / sum(weight.values())


def test_two_pools_are_equally_busy_where_no_rule_says_otherwise() -> None:
    """Three replicas of 10 and two of 5 carry 40; 30 requests a second fill three quarters of either."""
    offers = [
        Offer(accelerator=on, vendor=vendor, site="site", devices=1, node_watts=1.0, rent_usd=(usd,))
        for on, vendor, usd in (("red", "amd", 1.0), ("green", "nvidia", 1.5))
    ]
    kinds = [
        ReplicaKind(id=f"{on}1", accelerator=on, workload="chat", devices=1, requests_per_s={0: rate})
        for on, rate in (("red", 5.0), ("green", 10.0))
    ]
    pools = [
        PoolPeriod(
            offer=offer,
            period=0,
            owned_nodes=0,
            rented_nodes=count,
            spare_nodes=0,
            replicas={kind.id: count},
            load={(kind.id, ("chat", 0)): share},
        )
        for offer, kind, count, share in ((offers[0], kinds[0], 2, 0.0), (offers[1], kinds[1], 3, 1.0))
    ]
    demand = Demand(key=("chat", 0), requests_per_s=(30.0,), tokens=1000)
    problem = Problem(periods=1, offers=tuple(offers), replicas=tuple(kinds), demands=(demand,))
    mix = Mix(cost_usd=6.5, gap_fraction=0.0, seconds=0.0, pools=tuple(pools), purchases={})
    red, green = balance_load(mix, problem).pools
    assert isclose(red.load["red1", ("chat", 0)], 10 / 40, abs_tol=1e-6)
    assert isclose(green.load["green1", ("chat", 0)], 30 / 40, abs_tol=1e-6)
    assert isclose(_busiest(balance_load(mix, problem), problem), 30 / 40, abs_tol=1e-6)


def busiest(mix: Mix, problem: Problem) -> float:
    return max((problem.busy_share(pool, name) for pool in mix.pools for name in pool.replicas), default=0.0)


@law
@given(problem=problems())
def test_a_filling_keeps_nodes_cost_and_rules_and_is_no_busier(problem: Problem) -> None:
    found = cheapest(problem)
    assume(found is not None)
    assert found is not None
    before = balance_load(found, problem)
    after = balance_load(fill_nodes(before, problem), problem)
    keeps_the_rules(problem, after)
    assert after.cost_usd == before.cost_usd
    assert [pool.nodes for pool in after.pools] == [pool.nodes for pool in before.pools]
    # One kind less may cost 10% of margin in a pool; nothing else does.
    assert busiest(after, problem) <= busiest(before, problem) * (1 + 0.1 * len(problem.replicas)) + 1e-6


def test_of_two_fillings_of_one_cost_the_one_with_margin_and_one_kind_is_taken() -> None:
    """Three nodes of 8 hold 8 x tp2 with 13% to spare; 7 x tp2 and 2 x tp1 carry the load by a hair."""
    offer = Offer(accelerator="h", vendor="nvidia", site="s", devices=8, node_watts=1.0, rent_usd=(100.0,))
    kinds = tuple(
        ReplicaKind(id=f"tp{size}", accelerator="h", workload="chat", devices=size, requests_per_s={0: rate})
        for size, rate in ((1, 0.5), (2, 2.3), (4, 4.4))
    )
    problem = Problem(
        periods=1,
        offers=(offer,),
        replicas=kinds,
        demands=(Demand(key=("chat", 0), requests_per_s=(16.2,), tokens=1000),),
        spare_nodes=1,
    )
    found = cheapest(problem)
    assert found is not None
    (pool,) = balance_load(fill_nodes(found, problem), problem).pools
    assert (pool.nodes, pool.replicas) == (3, {"tp2": 8})
