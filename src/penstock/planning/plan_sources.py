"""Defines where a plan gets the data it does not state: accelerators, prices, models, capacities and a simulator."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.catalog.accelerator import Accelerator
from penstock.model import ModelSpec
from penstock.planning.candidates.candidate_search import EnginesOf
from penstock.planning.candidates.deployment_options import DraftsOf
from penstock.planning.candidates.disaggregated_units import UnitsOf
from penstock.planning.candidates.launch_obstacles import ObstacleOf
from penstock.planning.candidates.replica_capacity import CapacityOf, Option
from penstock.planning.candidates.replica_limit import LimitOf
from penstock.planning.spec.catalog_prices import Levels
from penstock.planning.spec.plan_types import ApiPrice
from penstock.planning.spec.resolve_plan import DrawOf, PricesOf
from penstock.planning.spec.trace_workload import ReadTrace
from penstock.planning.verification.serving_fleet import VerifyOf
from penstock.planning.verification.simulated_capacity import LoadJudge


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Sources of the data that a plan does not state: accelerators, prices, models, capacities and a simulator."""

    accelerators: Sequence[Accelerator]
    """Accelerators that the plan lists, or the whole catalog if the plan lists none."""
    prices_of: PricesOf
    model_of: Callable[[str], ModelSpec]
    capacity_of: CapacityOf
    capacity_note: str
    """Sentence for the report that says how capacity was estimated."""
    screen: CapacityOf | None = None
    curve_of: CapacityOf | None = None
    """Function that returns capacities with their simulated curves; slower, so it is used for kept candidates only."""
    engines_of: EnginesOf = lambda *_: ()
    """Function that returns the engines measured on an accelerator, optionally with a given model."""
    engines_of_vendor: Callable[[str], Sequence[str]] = lambda _: ()
    """Function that returns the engines measured on any accelerator of a vendor."""
    served: Callable[[str], bool] = lambda _: True
    """Function that returns whether an accelerator has enough measurements of serving performance."""
    drafts_of: DraftsOf = lambda *_: None
    """Function that returns how an engine decodes speculatively with a checkpoint's own draft layers."""
    units_of: UnitsOf = lambda *_: ()
    """Function that returns the disaggregated units worth simulating on an accelerator."""
    obstacle_of: ObstacleOf = lambda *_: None
    """Function that returns why preflight does not pass the launch of an option; None if the launch passes."""
    is_undetermined: Callable[[Option, str], bool] = lambda *_: False
    """Function that returns whether preflight has no rules that check the launch of an option."""
    verify_of: VerifyOf | None = None
    sizing_of: VerifyOf | None = None
    """Faster variant of `verify_of`, which finds only whether each pool meets the SLO, without the margin."""
    round_robin_of: VerifyOf | None = None
    """Variant of `sizing_of` with a router that sends requests to the replicas of a pool in turn."""
    limit_of: LimitOf = lambda *_: None
    """Function that returns the resource that limits a replica at the highest load within its SLO."""
    sustained_of: LoadJudge | None = None
    """Function that returns the highest rate that replicas of one kind sustain together."""
    api_of: Callable[[str], ApiPrice | None] = lambda _: None
    """Function that returns the recorded price of a model on an API."""
    read_trace: ReadTrace | None = None
    seller_levels: Levels | None = None
    """Function that returns how dear each cloud is, to pair the rents of accelerators that few clouds rent."""
    draw_of: DrawOf = lambda _: None
    """Function that returns the power that devices draw while serving; if it returns None, maximum power is billed."""
