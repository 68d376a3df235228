"""Makes a guide: searches each workload shape once, then judges its loads by arithmetic and a few simulations."""

from collections.abc import Iterator, Mapping

from penstock.errors import UsageError
from penstock.guide.capacity_memory import CapacityFiles
from penstock.guide.crossings import context_crossings, load_crossings
from penstock.guide.grid import WorkloadShape
from penstock.guide.guide_file import GuideQuestion
from penstock.guide.guide_result import Crossing, GuideCell, GuideResult
from penstock.guide.judge_cell import ShapeJudge
from penstock.guide.rows_between import RowsBetween, columns
from penstock.guide.search_shapes import ShapeSearch
from penstock.guide.shape_capacity import kind_name
from penstock.planning.candidates.replica_capacity import Option
from penstock.planning.optimizer.build_problem import is_denied
from penstock.planning.plan_sources import Sources
from penstock.planning.spec.resolve_plan import LeftOut, Resolved
from penstock.simulation.run_options import StageProgress


def make_guide(
    question: GuideQuestion,
    sources: Sources,
    progress: StageProgress = lambda *_: None,
    files: CapacityFiles | None = None,
) -> GuideResult:
    """Compute the result of a guide. `files` keep capacities between processes."""
    grid, template = question.grid, question.template
    longer = {shape: limit for shape in grid.shapes() if (limit := _exceeded_context(shape, sources)) is not None}
    shapes = [shape for shape in grid.shapes() if shape not in longer]
    if not shapes:
        raise UsageError("no prompt of the grid fits the context of its model; use shorter prompts")
    cells, trace_cells, crossings = list[GuideCell](), list[GuideCell](), list[Crossing]()
    left_out, options = dict[str, LeftOut](), dict[str, Option]()
    rents = dict[str, tuple[str, bool]]()
    served, vendors, unserved = set[str](), dict[str, str](), dict[str, str]()
    search = ShapeSearch(template=template, highest_load=grid.highest_load, sources=sources, files=files)
    between = RowsBetween(search=search, grid=grid)
    for number, shape in enumerate(shapes):
        progress(f"{shape.model} {shape.input_tokens:,}/{shape.output_tokens:,}", number, len(shapes))
        capacity = search.search(shape)
        judge = ShapeJudge.of(search, capacity)
        row = [judge.cell(load) for load in grid.loads]
        cells += row
        if (load := grid.trace_load(shape)) > 0:
            trace_cells.append(judge.cell(load))
        between.cells[shape] = row
        crossings += load_crossings(row, judge.fleets)
        search.keep(capacity)
        options |= {kind_name(one): one for engines in capacity.engines.values() for one in engines}
        left_out |= {entry.what: entry for entry in (*capacity.resolved.left_out, *_site_exclusions(capacity.resolved))}
        served |= {kind.candidate.accelerator.id for kind in capacity.kinds}
        vendors |= {one.id: one.vendor for one in capacity.resolved.accelerators.values() if one.id not in left_out}
        unserved |= {_accelerator_of(what): why for what, why in capacity.memory.left_out.items()}
        rents |= _rents(capacity.resolved)
    progress("where the answer turns", len(shapes), len(shapes))
    for line in columns(grid, cells):
        crossings += context_crossings(line, between.fleets)
    between.keep()
    return GuideResult(
        name=question.name,
        grid=grid,
        horizon_years=template.horizon_years,
        start=template.start.isoformat(),
        confidence=template.constraints.confidence,
        cells=tuple(cells),
        crossings=tuple(crossings),
        accelerators=tuple(vendors),
        vendors=tuple(dict.fromkeys(vendors.values())),
        left_out=(
            *_too_long(longer),
            *left_out.values(),
            *(LeftOut(what=name, why=why) for name, why in unserved.items() if name not in served | left_out.keys()),
        ),
        prices={name: source for name, (source, _) in rents.items()},
        estimated_rents=frozenset(name for name, (_, estimated) in rents.items() if estimated),
        options=options,
        trace_cells=tuple(trace_cells),
    )


def _rents(resolved: Resolved) -> dict[str, tuple[str, bool]]:
    """Return the source of each accelerator's rent, and whether the rent is estimated."""
    rents = {entry.id: entry.rent for entry in resolved.plan.accelerators}
    return {name: (rent.source, rent.estimated) for name, rent in rents.items() if rent is not None}


def _site_exclusions(resolved: Resolved) -> Iterator[LeftOut]:
    """Yield the accelerators that the site excludes."""
    for accelerator in resolved.accelerators.values():
        if all(is_denied(site, accelerator) for site in resolved.plan.sites):
            yield LeftOut(what=accelerator.id, why="denied at the site")


def _accelerator_of(what: str) -> str:
    """Return the accelerator of an entry such as `guide on h100_sxm`."""
    return what.rpartition(" on ")[2]


def _exceeded_context(shape: WorkloadShape, sources: Sources) -> int | None:
    """Return the context of a shape's model if a request is longer, or None."""
    limit = sources.model_of(shape.model).max_context_tokens
    return limit if limit is not None and shape.context_tokens > limit else None


def _too_long(limits: Mapping[WorkloadShape, int]) -> Iterator[LeftOut]:
    """Yield the prompts whose requests exceed the context of their model, each once."""
    for what, limit in {
        f"{shape.model} with prompts of {shape.input_tokens:,} tokens": limit for shape, limit in limits.items()
    }.items():
        yield LeftOut(what=what, why=f"the model's context ends at {limit:,} tokens")
