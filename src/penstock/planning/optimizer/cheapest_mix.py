"""Finds the cheapest fleet with an integer program over nodes, replicas and shares of each length bucket."""

from typing import Final

from penstock.planning.optimizer.fleet_program import FleetProgram
from penstock.planning.optimizer.problem import DemandKey, Mix, Offer, PoolPeriod, Problem, Restriction
from penstock.planning.optimizer.serve_draws import LoadDraws, serve_draws
from penstock.planning.optimizer.solved_programs import Optimum

_SMALL, _LARGE_GAP, _PERIODS_GAP, _SMALL_GAP = 500, 1e-3, 2e-4, 1e-5
"""Maximum number of placements of a small problem, and the optimality gaps at which the solver stops.

A small problem is solved to a gap of 0.001%, or of 0.02% if the fleet changes over time. A larger problem is solved to
a gap of 0.1%. The gap is reported."""
_MAX_NODES: Final = 2_000
"""Limit on the nodes of the solver's search tree; the largest example plan reaches it in about ten seconds."""
LOOSE: Final = 0.01
"""Optimality gap above which the search continues, because another fleet could still be over 1% cheaper."""
_PATIENCE: Final = 10
_NEGLIGIBLE: Final = 1e-7


def cheapest(
    problem: Problem,
    restriction: Restriction | None = None,
    *,
    gap_fraction: float | None = None,
    search_nodes: int = _MAX_NODES,
    patient: bool = True,
    draws: LoadDraws | None = None,
) -> Mix | None:
    """Find the cheapest fleet; None if no fleet satisfies every rule.

    If `draws` is given, the fleet serves the required number of them; then the problem should have no headroom.
    If `patient` is false, a fleet with an optimality gap above 1% is returned too; its `gap_fraction` states the gap.
    """
    highest = 1.0 if draws is None else draws.highest_need
    program = FleetProgram(problem, restriction or Restriction(), highest)
    if draws is not None:
        serve_draws(program, draws)
    gap = _gap(problem, len(program.count)) if gap_fraction is None else gap_fraction
    optimum = program.milp.solve(gap_fraction=gap, search_nodes=search_nodes)
    if patient and optimum is not None and optimum.gap_fraction > LOOSE:
        longer = program.milp.solve(gap_fraction=LOOSE, search_nodes=_PATIENCE * search_nodes)
        optimum = optimum if longer is None else longer.or_cheaper(optimum)
    return None if optimum is None else _read(program, optimum)


def _gap(problem: Problem, placements: int) -> float:
    if placements > _SMALL:
        return _LARGE_GAP
    return _SMALL_GAP if problem.periods == 1 else _PERIODS_GAP


def runners_up(
    problem: Problem, first: Mix, *, count: int, gap_fraction: float | None = None, search_nodes: int = 1_000
) -> tuple[Mix, ...]:
    """Find the next cheapest fleets; each of them lacks at least one accelerator of every cheaper fleet."""
    found: list[Mix] = []
    while len(found) < count:
        seen = tuple(mix.support for mix in (first, *found))
        other = Restriction(not_supports=seen)
        following = cheapest(problem, other, gap_fraction=gap_fraction, search_nodes=search_nodes, patient=False)
        if following is None:
            break
        found.append(following)
    return tuple(found)


def _read(program: FleetProgram, optimum: Optimum) -> Mix:
    """Convert a solution of the program to a fleet."""
    at = optimum.values
    pools = []
    for offer in program.offers:
        for period in program.serving_periods(offer):
            pool = _pool(program, offer, period, at)
            if pool.nodes:
                pools.append(pool)
    purchases, contracts = (
        {(*key, level, period): int(at[v]) for (key, level, period), v in chosen.items() if at[v] > 0}
        for chosen in (program.bought, program.contracted)
    )
    return Mix(
        cost_usd=optimum.cost,
        gap_fraction=optimum.gap_fraction,
        seconds=optimum.seconds,
        pools=tuple(pools),
        purchases=purchases,
        contracts=contracts,
    )


def _pool(program: FleetProgram, offer: Offer, period: int, at: tuple[float, ...]) -> PoolPeriod:
    owned = sum(int(at[v]) for (key, _, bought), v in program.bought.items() if key == offer.key and bought <= period)
    rented, kept = program.rented.get((offer.key, period)), program.kept.get((offer.key, period))
    rented_nodes, kept_nodes = (0 if variable is None else int(at[variable]) for variable in (rented, kept))
    on_contract = tuple(
        sum(int(at[v]) for v in program.contract_variables(offer, number, period))
        for number in range(len(offer.contracts))
    )
    spare = program.problem.spare_nodes if at[program.used[offer.key, period]] else 0
    replicas = {
        name: int(at[v])
        for (key, name, when), v in program.count.items()
        if (key, when) == (offer.key, period) and at[v] > 0
    }
    load = {
        (name, demand): at[v]
        for (key, name, demand, when), v in program.share.items()
        if (key, when) == (offer.key, period) and at[v] > _NEGLIGIBLE
    }
    room = (kept_nodes + owned + sum(on_contract) + rented_nodes - spare) * offer.devices
    carried = {name: program.carried_by(offer.key, name, period) for name in replicas}
    return PoolPeriod(
        offer=offer,
        period=period,
        owned_nodes=owned,
        rented_nodes=rented_nodes,
        spare_nodes=spare,
        replicas=_fill_paid_devices(program.problem, replicas, load, room, period, carried),
        load=load,
        kept_nodes=kept_nodes,
        contract_nodes=on_contract,
        carried={name: factor for name, factor in carried.items() if factor != 1.0},
    )


def _fill_paid_devices(
    problem: Problem,
    replicas: dict[str, int],
    load: dict[tuple[str, DemandKey], float],
    room: int,
    period: int,
    carried: dict[str, float],
) -> dict[str, int]:
    """Fill unused devices of paid nodes with more replicas, each time of the busiest kind that fits."""
    kinds = {replica.id: replica for replica in problem.replicas if replica.id in replicas}
    rates = {demand.key: demand.requests_per_s[period] for demand in problem.demands}
    busy = dict.fromkeys(replicas, 0.0)
    for (name, demand), share in load.items():
        busy[name] += share * rates[demand] / problem.rate_of(kinds[name], demand[1], period) / carried[name]
    filled = dict(replicas)
    left = room - sum(count * kinds[name].devices for name, count in replicas.items())
    while fitting := [name for name in filled if kinds[name].devices <= left and busy[name] > 0]:
        busiest = max(fitting, key=lambda name: (busy[name] / filled[name], name))
        filled[busiest] += 1
        left -= kinds[busiest].devices
    return filled
