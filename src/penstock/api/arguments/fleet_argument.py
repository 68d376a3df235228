"""Converts a pool of a fleet file into a replica. Replicas are simulated, emulated or used as routing targets."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, get_args

from penstock.api.arguments.choices import cache_choice, model_choice
from penstock.api.options.file_types import AskedFleet
from penstock.catalog.accelerator import Accelerator
from penstock.catalog.own_accelerator import find_accelerator
from penstock.errors import UsageError
from penstock.fleet.deployment import Deployment
from penstock.fleet.engine_settings import ENGINE_FIELDS, EngineSetting, caches_prefixes, context_limit
from penstock.fleet.engines import Engine
from penstock.fleet.fleet_file import read_fleet
from penstock.fleet.pools import UNSTATED, Fleet, Pool
from penstock.fleet.serving_engines import ENGINES, serving_defaults, serving_engine
from penstock.performance.calibration.efficiencies import Efficiencies
from penstock.performance.disaggregated.disaggregated_prediction import stack_in_phase
from penstock.performance.prediction.drafted_load import drafted_curve
from penstock.performance.prediction.multi_token_prediction import multi_token_prediction
from penstock.performance.prediction.serving_stack import stack_of
from penstock.performance.prediction.speculation import Speculation
from penstock.performance.shipped.shipped_disaggregated import shipped_phase_factors
from penstock.performance.shipped.shipped_drafts import shipped_drafts
from penstock.performance.shipped.shipped_runs import shipped_efficiencies
from penstock.performance.step.step_work import ReplicaWork
from penstock.reading.text import read_text
from penstock.simulation.placement import Placement, place_on
from penstock.simulation.replica import Replica

_VENDORS: Final = frozenset(get_args(Accelerator.__annotations__["vendor"]))


def fleet_choice(asked: AskedFleet) -> Fleet:
    """Read a fleet file. A loaded fleet is returned unchanged."""
    if isinstance(asked, Fleet):
        return asked
    path = Path(asked)
    return read_fleet(read_text(path, "`penstock plan plan.yaml --fleet fleet.yaml` writes a fleet file"), path.name)


def typical_tokens(fleet: Fleet, pool: Pool) -> tuple[int, int]:
    """Return the mean prompt and answer tokens of the routes to a pool.

    If no route leads to the pool, the means are over all routes of the fleet.
    """
    names = [pool.name, *(other.name for other in fleet.pools if other.feeds == pool.name)]
    mine = [route.peak_requests_per_s * sum(route.weights.get(name, 0.0) for name in names) for route in fleet.routes]
    return _mean_tokens(fleet, mine) if any(mine) else fleet_tokens(fleet)


def fleet_tokens(fleet: Fleet) -> tuple[int, int]:
    """Return the mean prompt and answer tokens of the fleet's requests at peak."""
    return _mean_tokens(fleet, [route.peak_requests_per_s for route in fleet.routes])


def _mean_tokens(fleet: Fleet, rates: Sequence[float]) -> tuple[int, int]:
    total = sum(rates)
    if not total:
        return 1024, 256
    inputs = sum(rate * route.input_tokens for rate, route in zip(rates, fleet.routes, strict=True)) / total
    outputs = sum(rate * route.output_tokens for rate, route in zip(rates, fleet.routes, strict=True)) / total
    return max(1, round(inputs)), max(1, round(outputs))


def placed_pool(fleet: Fleet, pool: Pool, efficiencies: Efficiencies | None = None) -> Replica:
    """Place one replica of a pool on the measured stack. Raise an error if the model does not fit.

    `efficiencies` is the shipped evidence, unless own runs correct it.
    """
    evidence = efficiencies or shipped_efficiencies()
    work = ReplicaWork(deployed_pool(pool))
    drafts = _drafts(pool)
    stack = stack_of(work, pool.engine.name, evidence, drafting=drafts is not None)
    drafted = drafted_curve(stack, work, pool.engine.name, evidence, drafts)
    if pool.role != "both":
        stack = stack_in_phase(stack, work.deployment, pool.engine.name, pool.role, shipped_phase_factors())
    placement = place_on(
        work,
        stack,
        typical_lengths=typical_tokens(fleet, pool),
        measured_engine=pool.engine.name,
        prefix_caching=caches_prefixes(pool.engine.settings),
        speculation=drafts if drafted is None else drafted.at_typical_loads(),
        drafted=drafted,
    )
    if placement.replica is None:
        raise UsageError(_misfit(pool, placement))
    limits = (placement.replica.context_tokens, context_limit(pool.engine.settings))
    shortest = min((limit for limit in limits if limit is not None), default=None)
    return replace(placement.replica, context_tokens=shortest)


def _misfit(pool: Pool, placement: Placement) -> str:
    """Return an error message that says why a pool does not fit in memory.

    The message also gives the `penstock fit` command that shows the details.
    """
    obstacle = placement.memory.obstacle
    why = "" if obstacle is None else f" ({obstacle.reason})"
    ranks = {"--tp": pool.split.tp, "--pp": pool.split.pp, "--dp": pool.split.dp}
    flags = {"--precision": pool.weights, "--kv": pool.kv, **ranks}
    flags_text = " ".join(f"{flag} {value}" for flag, value in flags.items() if value != 1)
    split = f"{flags_text}{' --ep' if pool.split.expert_parallel else ''}"
    return f"pool '{pool.name}' does not fit{why}: run `penstock fit {pool.model} --on {pool.accelerator} {split}`"


def deployed_pool(pool: Pool) -> Deployment:
    """Describe one replica of a pool as a deployment."""
    drafts, accelerator = _drafts(pool), find_accelerator(pool.accelerator)
    if pool.vendor.lower() in _VENDORS - {accelerator.vendor}:
        raise UsageError(
            f"pool '{pool.name}' has `vendor: {pool.vendor}`, but the vendor of {pool.accelerator} is "
            f"{accelerator.vendor}; write `vendor: {accelerator.vendor}`, or choose your own name for the pool's "
            "failure domain"
        )
    return Deployment(
        model=model_choice(pool.model, pool.weights),
        accelerator=accelerator,
        engine=_engine(pool),
        parallelism=pool.split,
        cache_dtype=cache_choice(pool.kv),
        speculative=drafts is not None and drafts.own_layers,
    )


def _drafts(pool: Pool) -> Speculation | None:
    if not pool.drafted_tokens:
        return None
    spec = model_choice(pool.model, pool.weights)
    return multi_token_prediction(spec, shipped_drafts(), drafted_tokens=pool.drafted_tokens)


def _engine(pool: Pool) -> Engine:
    """Return the settings of a pool's engine; an engine that Penstock does not know has the settings of vLLM."""
    known = pool.engine.name in ENGINES
    usual = serving_defaults(
        serving_engine(pool.engine.name) if known else "vllm",
        find_accelerator(pool.accelerator),
        version=pool.engine.version if known and pool.engine.version != UNSTATED else None,
        tp=pool.split.tp,
        pp=pool.split.pp,
    )
    stated: dict[str, EngineSetting] = {
        field: pool.engine.settings[setting]
        for setting, field in ENGINE_FIELDS.items()
        if setting in pool.engine.settings
    }
    return replace(usual, **stated)  # type: ignore[arg-type] # checked by `Engine` itself
