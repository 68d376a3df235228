"""Simulates a heterogeneous fleet under several routing policies: `penstock.simulate_fleet`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from penstock.api.answer import ApiAnswer, Row
from penstock.api.arguments.choices import tokens_choice
from penstock.api.arguments.fleet_argument import deployed_pool, fleet_choice, fleet_tokens, placed_pool
from penstock.api.arguments.fleet_events import FleetEvents, fleet_events_argument
from penstock.api.arguments.own_corrections import efficiencies_with, require_used
from penstock.api.arguments.policy_names import policies_choice
from penstock.api.arguments.shared_device_argument import swapping_devices
from penstock.api.arguments.static_weights import weights_choice
from penstock.api.arguments.workload_argument import after_system_prompts, workload_choice
from penstock.api.compile_notice import compile_first
from penstock.api.options.argument_types import Tokens
from penstock.api.options.option_fields import takes
from penstock.api.options.simulate_options import SimulateFleetOptions
from penstock.api.progress import ProgressListener
from penstock.errors import UsageError
from penstock.fleet.disaggregated_replica import Disaggregated
from penstock.fleet.pools import Fleet, Pool, Route
from penstock.performance.calibration.efficiencies import Efficiencies
from penstock.performance.calibration.own_correction import OwnCorrection, fingerprint_of
from penstock.performance.disaggregated.disaggregated_prediction import transfer_token_s
from penstock.performance.disaggregated.steady_state import HANDOVER_S
from penstock.report.correction_note import correction_note
from penstock.report.drawing.attainment import format_attainment
from penstock.report.simulate_fleet.document import SimulateFleetDocument
from penstock.report.simulate_fleet.terminal import render_fleet
from penstock.simulation.compare_policies import PolicyRun, SharedLoad, compare, with_load_spike
from penstock.simulation.replica import ReplicaPool, Transfer
from penstock.simulation.run_options import RouterVisibility, Routing
from penstock.workload import (
    CountProgress,
    Empirical,
    Fixed,
    Overload,
    Slo,
    SloClass,
    Workload,
    parse_duration,
    vary_answers,
)

_PAIRS: Final = 4096
"""Approximate number of (prompt length, answer length) pairs that are sampled from a fleet's routes."""


@dataclass(frozen=True, kw_only=True, repr=False)
class SimulateFleetAnswer(ApiAnswer):
    """Results of each policy. All policies get the same requests."""

    document_type = SimulateFleetDocument
    fleet: Fleet
    pools: tuple[ReplicaPool, ...]
    load: SharedLoad
    events: FleetEvents
    runs: tuple[PolicyRun, ...]
    others: tuple["SimulateFleetAnswer", ...] = ()
    """Results of the fleet's other models. Models that share no device are simulated one by one."""
    corrections: tuple[OwnCorrection, ...] = ()
    """Corrections by own runs of pools of the fleet."""

    @property
    def workload(self) -> Workload:
        """Return the workload, which is the same for every policy."""
        return self.load.workload

    @property
    def good(self) -> bool:
        """Return whether the first policy meets every SLO of every model."""
        return self.runs[0].outcome.met and all(other.good for other in self.others)

    def rows(self) -> list[Row]:
        """Return one row per model and policy."""
        model = ", ".join(models_of(self.fleet))
        return [_row(model, run) for run in self.runs] + [row for other in self.others for row in other.rows()]

    def render(self, columns: int) -> RenderableType:
        """Return the terminal output of `simulate --fleet`."""
        drawn = [
            render_fleet(one.fleet, one.pools, one.load, one.events.lines, one.runs, columns)
            for one in (self, *self.others)
        ]
        pieces = [piece for part in drawn for piece in (part, Text())] if self.others else drawn
        return Group(*pieces, *([correction_note(self.corrections)] if self.corrections else []))

    def _summary(self) -> tuple[str, Sequence[str]]:
        said = [f"{run.policy.name} {format_attainment(run.worst_met_fraction)}" for run in self.runs]
        return self.fleet.name, said


@takes(SimulateFleetOptions)
def simulate_fleet(options: SimulateFleetOptions) -> SimulateFleetAnswer:
    """Compare policies on a fleet, as `penstock simulate --fleet` does: `simulate_fleet("fleet.yaml", rate=20)`.

    `policy` names one or several policies, comma separated. `events` are lines such as `slow h100/0 x3 at 60s`. Each
    model of the fleet is simulated alone; `rate` and `requests` are divided among the models by the routes' rates. If
    models share devices, all models are simulated together.
    """
    unstated = options.input_tokens is None and options.output_tokens is None
    if options.trace is not None and not unstated:
        raise UsageError("a trace has its own lengths; give either --trace, or --in and --out")
    if options.trace is None and options.columns is not None:
        raise UsageError("--columns needs a trace; add `--trace requests.csv`")
    asked = fleet_choice(options.fleet)
    setups = [fingerprint_of(deployed_pool(pool), pool.engine.name) for pool in asked.pools]
    efficiencies = efficiencies_with(options.calibration)
    require_used(efficiencies, setups)
    fleets = (asked,) if asked.shared_devices else _by_model(asked)
    if len(models_of(asked)) > 1 and options.trace is not None:
        raise UsageError("a trace is of one model; keep only the pools of one model in the fleet file")
    if asked.shared_devices and (not unstated or options.slo is not None):
        raise UsageError(
            "models on shared devices have the lengths and SLOs of their routes; leave out --in, --out and --slo"
        )
    total = sum(_rate(fleet) for fleet in fleets)
    shares = [_rate(fleet) / total if total else 1.0 for fleet in fleets]
    first, *others = (_simulate_model(options, efficiencies, *part) for part in zip(fleets, shares, strict=True))
    corrections = tuple(one for one in efficiencies.corrections if one.setup in setups)
    return replace(first, others=tuple(others), corrections=corrections)


def _simulate_model(
    options: SimulateFleetOptions, efficiencies: Efficiencies, fleet: Fleet, share: float
) -> SimulateFleetAnswer:
    """Simulate the pools of one model, which get `share` of the stated rate and requests."""
    unstated = options.input_tokens is None and options.output_tokens is None
    policies, pools = policies_choice(options.policy), replica_pools(fleet, efficiencies)
    rate_per_s = options.rate * share if options.rate is not None else _peak(fleet, recorded=options.trace is not None)
    workload, count = workload_choice(
        options,
        tokens=_tokens(fleet, options.input_tokens, options.output_tokens),
        rate_per_s=rate_per_s,
        slo=_common_slo(fleet, several=options.trace is None and unstated) if options.slo is None else None,
    )
    if options.trace is None and unstated:
        workload = _of_routes(workload, fleet, own_slos=options.slo is None)
    else:
        workload = replace(workload, classes=tuple(_in_overload(item, fleet) for item in workload.classes))
        workload = _with_varied_answers(workload, fleet)
    events = fleet_events_argument(_own_events(options, fleet), pools)
    sight = RouterVisibility(
        report_interval_s=parse_duration(options.reports),
        report_delay_s=parse_duration(options.report_delay),
        report_loss=events.report_loss,
        cache_delay_s=parse_duration(options.cache_delay),
    )
    models = models_of(fleet)
    routing = Routing(
        sight=sight,
        pickers=options.pickers,
        faults=events.faults,
        sampled_every=options.sampled_every,
        class_models=tuple(models.index(key.model) for key in _class_keys(fleet)) if len(models) > 1 else (),
    )
    compile_first(options.watch)
    requests = count if options.requests is None else max(1, round(options.requests * share))
    load = SharedLoad(workload=workload, requests=requests, rate_per_s=rate_per_s, seed=options.seed)
    draw = partial(workload.blocks, seed=load.seed, requests=load.requests, rate_per_s=rate_per_s)
    runs = compare(
        pools,
        lambda: with_load_spike(draw(), events.load_spikes),
        policies,
        classes=workload.classes,
        routing=routing,
        devices=swapping_devices(fleet),
        weights=weights_choice(policies, fleet, pools, draw(), workload.classes),
        progress=partial(_progress, options.watch, load.requests),
    )
    return SimulateFleetAnswer(fleet=fleet, pools=tuple(pools), load=load, events=events, runs=runs)


def _progress(watch: ProgressListener, total: int, name: str) -> CountProgress:
    return lambda done: watch.progress(name, done, total)


def models_of(fleet: Fleet) -> tuple[str, ...]:
    """Return the models of a fleet, each once."""
    return tuple(dict.fromkeys(pool.model for pool in fleet.pools))


def _by_model(fleet: Fleet) -> tuple[Fleet, ...]:
    """Divide a fleet into the pools and routes of each model."""
    parts = []
    for model in models_of(fleet):
        pools = tuple(pool for pool in fleet.pools if pool.model == model)
        names = {pool.name for pool in pools}
        routes = []
        for route in fleet.routes:
            own = {name: weight for name, weight in route.weights.items() if name in names}
            if own:
                share = sum(own.values()) / sum(route.weights.values())
                weights = {name: weight / sum(own.values()) for name, weight in own.items()}
                routes.append(replace(route, weights=weights, peak_requests_per_s=route.peak_requests_per_s * share))
        parts.append(replace(fleet, pools=pools, routes=tuple(routes)))
    return tuple(parts) if len(parts) > 1 else (fleet,)


def _own_events(options: SimulateFleetOptions, fleet: Fleet) -> Sequence[str]:
    """Return the events without those of other models' pools."""
    others = {pool.name for pool in fleet_choice(options.fleet).pools} - {pool.name for pool in fleet.pools}
    return [line for line in options.events if not any(f" {name}/" in f" {line}" for name in others)]


def replica_pools(fleet: Fleet, efficiencies: Efficiencies | None = None) -> list[ReplicaPool]:
    """Return the simulated pools of a fleet. `efficiencies` is the shipped evidence, unless own runs correct it."""
    decoding = [pool for pool in fleet.pools if pool.role == "decode"]
    if decoding and (len(decoding) > 1 or any(pool.role == "both" for pool in fleet.pools)):
        raise UsageError(
            "only one decode pool with its prefill pools can be simulated; keep only these pools in the file"
        )
    return [
        ReplicaPool(
            name=pool.name,
            replica=placed_pool(fleet, pool, efficiencies),
            replicas=pool.replicas,
            role=pool.role,
            transfer=_transfer(pool, decoding[0]) if pool.role == "prefill" else None,
            usd_per_hour=pool.usd_per_hour,
            elastic=pool.elastic,
            vendor=pool.vendor,
            model=models_of(fleet).index(pool.model),
        )
        for pool in fleet.pools
    ]


def _transfer(ahead: Pool, after: Pool) -> Transfer:
    """Return the KV transfer time from a prefill pool to a decode pool."""
    deployed = Disaggregated(
        prefill=deployed_pool(ahead),
        prefill_replicas=ahead.replicas,
        decode=deployed_pool(after),
        decode_replicas=after.replicas,
        kv_bytes_per_s=ahead.kv_bytes_per_s,
    )
    return Transfer(token_s=transfer_token_s(deployed), start_s=HANDOVER_S)


def _tokens(fleet: Fleet, inputs: Tokens | None, outputs: Tokens | None) -> tuple[int, int]:
    """Return the prompt and answer lengths.

    A length that is not given is the mean over the fleet's routes, weighted by their rates.
    """
    mean_in, mean_out = fleet_tokens(fleet)
    return tokens_choice(inputs or mean_in), tokens_choice(outputs or mean_out)


def _of_routes(workload: Workload, fleet: Fleet, *, own_slos: bool) -> Workload:
    """Return the workload with request lengths drawn from the fleet's routes, in proportion to the routes' rates.

    As in plans, the answers of a route vary around its length. If `own_slos` is true, each request has the SLO of its
    route. A fleet with fewer than two routes has the classes of the workload.
    """
    if len(fleet.routes) < 2:  # one length is no mix
        same = replace(workload, classes=tuple(_in_overload(item, fleet) for item in workload.classes))
        return _with_varied_answers(same, fleet)
    rates = np.array([route.peak_requests_per_s for route in fleet.routes])
    counts = np.maximum(1, np.rint(_PAIRS * rates / rates.sum()).astype(np.int64))
    inputs = np.array([route.input_tokens for route in fleet.routes], np.int32)
    outputs = np.array([route.output_tokens for route in fleet.routes], np.int32)
    drawn = [
        vary_answers(route.input_tokens, route.output_tokens, int(count), context_tokens=_context(fleet))
        for route, count in zip(fleet.routes, counts, strict=True)
    ]
    name = f"{inputs.min():,} to {inputs.max():,} in, {outputs.min():,} to {outputs.max():,} out, as its routes say"
    name += after_system_prompts(workload.sharing)
    lengths = Empirical(
        input_tokens=np.concatenate([each.input_tokens for each in drawn]),
        output_tokens=np.concatenate([each.output_tokens for each in drawn]),
    )
    keys = _class_keys(fleet)
    if not own_slos or len(keys) == 1:
        classes = tuple(_in_overload(item, fleet) for item in workload.classes)
        return replace(workload, name=name, lengths=lengths, classes=classes)
    places = np.array([keys.index(_class_key(fleet, route)) for route in fleet.routes], np.uint8)
    return replace(
        workload,
        name=name,
        lengths=replace(lengths, slo_class=np.repeat(places, counts)),
        classes=tuple(
            SloClass(
                name=" and ".join(
                    dict.fromkeys(
                        route.workload for route, own in zip(fleet.routes, places, strict=True) if own == place
                    )
                ),
                share_fraction=float(counts[places == place].sum() / counts.sum()),
                slo=key.slo,
                overload=key.overload,
            )
            for place, key in enumerate(keys)
        ),
    )


def _with_varied_answers(workload: Workload, fleet: Fleet) -> Workload:
    """Return the workload with answers that vary as in plans, if all requests are equally long."""
    same = workload.lengths
    if not isinstance(same, Fixed):
        return workload
    varied = vary_answers(same.input_tokens, same.output_tokens, _PAIRS, context_tokens=_context(fleet))
    return replace(workload, lengths=varied)


def _context(fleet: Fleet) -> int | None:
    """Return the shortest longest context of the fleet's models; None if none states one."""
    limits = [deployed_pool(pool).model.max_context_tokens for pool in fleet.pools]
    return min((limit for limit in limits if limit is not None), default=None)


class _ClassKey(NamedTuple):
    """What the requests of a class have in common."""

    slo: Slo
    overload: Overload
    model: str


def _class_key(fleet: Fleet, route: Route) -> _ClassKey:
    return _ClassKey(route.slo, route.overload, fleet.pool(next(iter(route.weights))).model)


def _class_keys(fleet: Fleet) -> list[_ClassKey]:
    return list(dict.fromkeys(_class_key(fleet, route) for route in fleet.routes))


def _in_overload(item: SloClass, fleet: Fleet) -> SloClass:
    """Return a class of all requests with the `overload` of the fleet's routes, or unchanged if the routes differ."""
    stated = {route.overload for route in fleet.routes}
    return replace(item, overload=next(iter(stated))) if len(stated) == 1 else item


def _peak(fleet: Fleet, *, recorded: bool) -> float | None:
    """Return the fleet's peak rate in requests per second.

    The result is None if a trace gives the arrival times, or if the routes have no rate.
    """
    return None if recorded else _rate(fleet) or None


def _rate(fleet: Fleet) -> float:
    return sum(route.peak_requests_per_s for route in fleet.routes)


def _common_slo(fleet: Fleet, *, several: bool) -> Slo | None:
    """Return the SLO of the fleet's routes, or the first SLO if there may be several; None if there are no routes.

    Raise an error if the routes have different SLOs and the requests are not those of the routes.
    """
    slos = list(dict.fromkeys(route.slo for route in fleet.routes))
    if len(slos) > 1 and not several:
        raise UsageError("the fleet's routes have different SLOs; give one for all with --slo ttft=1s,tpot=50ms")
    return next(iter(slos), None)


def _row(model: str, run: PolicyRun) -> Row:
    outcome = run.outcome
    ttft, tpot = outcome.classes[0].ttft, outcome.classes[0].tpot
    return {
        "policy": run.policy.name,
        "model": model,
        "requests": outcome.asked,
        "served": outcome.requests,
        "refused": outcome.refused,
        "held": outcome.held,
        "oversized": outcome.oversized,
        "lost": outcome.lost,
        "worst_met_fraction": run.worst_met_fraction,
        "ttft_s_p50": ttft.quantile_s(0.5),
        "ttft_s_p99": ttft.quantile_s(0.99),
        "tpot_s_p50": tpot.quantile_s(0.5),
        "tpot_s_p99": tpot.quantile_s(0.99),
        "good_tokens": run.good_tokens,
        "goodput_tokens_per_s": outcome.goodput_tokens_per_s,
        "usd_per_good_mtok": run.usd_per_good_mtok,
        "preemptions": outcome.preemptions,
    }
