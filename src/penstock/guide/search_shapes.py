"""Searches the candidates of workload shapes, or remembers them from an earlier process."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from hashlib import sha256

from penstock.errors import UsageError
from penstock.guide.capacity_memory import CapacityFiles, ShapeMemory
from penstock.guide.grid import WorkloadShape
from penstock.guide.shape_capacity import PoolKind, ShapeCapacity, kind_name
from penstock.planning.candidates.candidate_search import Candidate
from penstock.planning.candidates.replica_capacity import Option
from penstock.planning.candidates_by_workload import search_candidates, workload_options
from penstock.planning.make_plan import resolve_inputs
from penstock.planning.optimizer.build_problem import build_problem
from penstock.planning.optimizer.problem import Offer
from penstock.planning.plan_sources import Sources
from penstock.planning.spec.plan_types import Plan
from penstock.planning.spec.resolve_plan import Resolved
from penstock.planning.uncertainty.uncertain_inputs import InputWorld


@dataclass(kw_only=True, eq=False)
class ShapeSearch:
    """Searches shapes of one guide. Inputs and options are found once for each model."""

    template: Plan
    highest_load: float
    sources: Sources
    files: CapacityFiles | None
    _inputs: dict[str, "_ModelInputs"] = field(default_factory=dict)

    def search(self, shape: WorkloadShape) -> ShapeCapacity:
        """Return the capacities of a shape; its candidates are those of a plan of its highest load."""
        resolved = self._of_model(shape).world.resolved
        plan = replace(resolved.plan, workloads=(shape.workload(resolved.plan.workloads[0], self.highest_load),))
        resolved = replace(resolved, plan=plan)
        kept = None if self.files is None else self.files.read(self._key(shape, resolved))
        memory = ShapeMemory() if kept is None else ShapeMemory.of(kept)
        if kept is None:
            choice = search_candidates(resolved, self.sources, lambda *_: None)
            memory.left_out = {entry.what: entry.why for entry in choice.left_out}
            memory.kinds = [kind_name(entry.option) for entry in choice.candidates]
            memory.changed = True
        return self._capacity(shape, resolved, memory)

    def on(self, names: Collection[str], shape: WorkloadShape) -> "ShapeSearch":
        """Return a search of a shape's model on these accelerators only."""
        resolved = self.world_of(shape).resolved
        kept = tuple(entry for entry in resolved.plan.accelerators if entry.id in names)
        sources = replace(self.sources, accelerators=tuple(resolved.accelerators[entry.id] for entry in kept))
        return replace(self, template=replace(self.template, accelerators=kept), sources=sources, _inputs={})

    def keep(self, capacity: ShapeCapacity) -> None:
        """Keep what was found for a shape, for later processes."""
        if self.files is not None and capacity.memory.changed:
            self.files.write(self._key(capacity.shape, capacity.resolved), capacity.memory.plain())

    def world_of(self, shape: WorkloadShape) -> InputWorld:
        """Return the inputs of all plans of a shape's model."""
        return self._of_model(shape).world

    def _of_model(self, shape: WorkloadShape) -> "_ModelInputs":
        """Return the inputs of a model's plans and its options; the first shape of a model has its shortest prompt."""
        if shape.model not in self._inputs:
            resolved = resolve_inputs(shape.plan(self.template, self.highest_load), self.sources)[0]
            options = workload_options(resolved.plan.workloads[0], resolved, self.sources)
            facts = self.sources.model_of(shape.model), resolved.accelerators
            digest = sha256(repr(facts).encode()).hexdigest()
            self._inputs[shape.model] = _ModelInputs(InputWorld(resolved=resolved), options, digest)
        return self._inputs[shape.model]

    def _capacity(
        self,
        shape: WorkloadShape,
        resolved: Resolved,
        memory: ShapeMemory,
    ) -> ShapeCapacity:
        options = self._of_model(shape).options
        found = [option for option in options if kind_name(option) in memory.kinds]
        empty = ShapeCapacity(
            shape=shape,
            resolved=resolved,
            sources=self.sources,
            problem=build_problem(resolved, ()),
            kinds=(),
            engines={},
            memory=memory,
        )
        if empty.problem.periods > 1:
            raise UsageError("a guide plans one period; shorten `horizon_years`, or use `acquire: [rent]`")
        named = {option.id for option in found}
        empty.engines = {
            name: tuple(option for option in options if option.id == name and self._launchable(option, shape, memory))
            for name in named
        }
        entries = [empty.candidate_at(_without_capacity(option), self.highest_load)[0] for option in found]
        problem = build_problem(resolved, entries)
        kinds = tuple(
            PoolKind(candidate=entry, offer=offer)
            for entry in entries
            for offer in problem.offers
            if entry.accelerator.id == offer.accelerator and _holds(offer, entry)
        )
        return replace(empty, problem=problem, kinds=kinds)

    def _launchable(self, option: Option, shape: WorkloadShape, memory: ShapeMemory) -> bool:
        if option.measured_engine in self.template.workloads[0].engines:
            return True
        name = kind_name(option)
        if name not in memory.launchable:
            memory.launchable[name] = self.sources.obstacle_of(option, shape.model) is None
            memory.changed = True
        return memory.launchable[name]

    def _key(self, shape: WorkloadShape, resolved: Resolved) -> str:
        """Return a digest of what decides the capacities of a shape, except for the program."""
        plan, workload = resolved.plan, resolved.plan.workloads[0]
        asked = (workload.weights, workload.kv, workload.engines, workload.mtp, workload.demand)
        parts = tuple((entry.id, entry.tp) for entry in plan.accelerators)
        rules = (plan.constraints.confidence, plan.constraints.utilisation, plan.seed)
        gains = tuple((vendor, stack.software_gain_per_year) for vendor, stack in plan.stacks.items())
        facts = self._of_model(shape).digest
        return sha256(repr((shape, asked, parts, rules, gains, self.highest_load, facts)).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class _ModelInputs:
    """What the plans of one model share."""

    world: InputWorld
    options: tuple[Option, ...]
    digest: str
    """Digest of the model and the accelerators: files of the user's own may change under the same name."""


def _without_capacity(option: Option) -> Candidate:
    return Candidate(
        id=option.id, workload="guide", weights=option.weights, deployment=option.deployment, capacities=()
    )


def _holds(offer: Offer, entry: Candidate) -> bool:
    most = offer.max_replica_devices
    return offer.min_replica_devices <= entry.devices and (most is None or entry.devices <= most)
