"""Renders the answer of `fit`.

The answer has a table of accelerators, memory bars, and remedies if the model does not fit.
"""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.catalog.device_prices import DevicePrice
from penstock.fleet import Engine
from penstock.model import ModelSpec, Part
from penstock.performance.memory.budget import MemoryBudget, MemoryFit
from penstock.performance.memory.minimum_change import FitReport
from penstock.report.drawing.bars import CACHE, EXPERTS, OVER, UNUSED, WEIGHTS, WORK, Use, legend, stacked_bar
from penstock.report.drawing.comparison_table import measured_width
from penstock.report.price_note import price_notes
from penstock.units import GIB, format_gib, format_params

NONE = "-"


def render_fit(
    model: ModelSpec,
    reports: Sequence[FitReport],
    context_tokens: int,
    width: int,
    rents: tuple[Sequence[DevicePrice | None], Sequence[float | None]],
) -> RenderableType:
    """Draw the whole answer. `rents` are the rents of the devices, and those per GiB left for the KV cache."""
    table = _table(reports, context_tokens)
    # Narrow columns would cut numbers, so the narrow table has fewer columns.
    if measured_width(table) > width:
        table = _narrow_table(reports, context_tokens)
    pieces: list[RenderableType] = [_headline(model, reports), table, Text(), _bars(reports, width)]
    pieces += [_verdict(report) for report in reports if not report.fit.fits]
    pieces += [Text(line) for report in reports if (line := _logged_kv_tokens(report))]
    pieces += [_kv_rents(reports, *rents), _footnote(reports)]
    notes = dict.fromkeys((*model.notes, *(note for report in reports for note in report.notes)))
    pieces += [Text(f"Note: {note}", style="dim") for note in notes]
    return Group(*pieces)


def _headline(model: ModelSpec, reports: Sequence[FitReport]) -> Text:
    text = Text(model.name, style="bold")
    size = format_params(model.total_params)
    if model.experts is not None:
        size += f", {format_params(model.active_params)} active"
    text.append(f"  {size} parameters, {format_gib(model.weight_bytes)} GiB as ", style="default not bold")
    text.append(" + ".join(model.formats), style="default not bold")
    kv = {report.fit.deployment.chosen_cache_dtype.value for report in reports}
    engines = {_engine(report.fit.deployment.engine) for report in reports}
    text.append(f"; KV {'/'.join(sorted(kv))}; {', '.join(sorted(engines))}\n", style="default not bold")
    return text


def _engine(engine: Engine) -> str:
    """Name the engine, and the engine whose memory rules are assumed for it."""
    rules = f"{engine.name} {engine.version}"
    return rules if engine.stands_for is None else f"{engine.stands_for} (assumed: the memory rules of {rules})"


def _table(reports: Sequence[FitReport], context_tokens: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("accelerator", "split", "fits"):
        table.add_column(name, no_wrap=True)
    for name in (
        "memory\nGiB",
        "weights\nGiB",
        "KV cache\nGiB",
        "KV tokens\n(P10-P90)",
        f"requests\nof {context_tokens:,}",
        "longest\ncontext",
        "min devices\n(tp, then pp)",
    ):
        table.add_column(name, justify="right", no_wrap=True)
    for report in reports:
        cells = _Cells(report)
        span = (f"\n{cells.low}-{cells.high}", "dim") if cells.low else ""
        tokens = Text.assemble(cells.tokens, span)
        numbers = (cells.memory, cells.weights, cells.cache, tokens, cells.requests, cells.longest, cells.fewest)
        table.add_row(cells.name, cells.split, cells.verdict, *numbers)
    return table


def _narrow_table(reports: Sequence[FitReport], context_tokens: int) -> Table:
    """Draw the table in 80 columns. Cells with names, ranges or the maximum context take several lines."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("accelerator\nsplit", overflow="fold")
    table.add_column("fits", no_wrap=True)
    for name in (
        "weights\nof GiB",
        "KV\nGiB",
        "KV tokens\nP10\nP90",
        f"requests\nof {context_tokens:,}\n(longest)",
        "min\ndevices",
    ):
        table.add_column(name, justify="right", no_wrap=True)
    for report in reports:
        cells = _Cells(report)
        ends = (f"\n{cells.low}\n{cells.high}", "dim") if cells.low else ""
        held = f"{cells.weights}\n{cells.memory}" if cells.weights != NONE else NONE
        tokens = Text.assemble(cells.tokens, ends)
        requests = cells.requests if cells.longest == NONE else f"{cells.requests}\n({cells.longest})"
        numbers = (held, cells.cache, tokens, requests, cells.fewest)
        table.add_row(f"{cells.name}\n{cells.split}", cells.verdict, *numbers)
    return table


class _Cells:
    """The formatted cells of one accelerator's row."""

    def __init__(self, report: FitReport) -> None:
        fit, budget, capacity = report.fit, report.fit.budget, report.fit.capacity
        self.name = _name(fit) + ("" if fit.deployment.accelerator.recommendable else " ?")
        self.split = str(fit.deployment.parallelism)
        self.verdict = _verdict_word(report)
        self.fewest = str(report.fewest_devices or NONE)
        self.memory = self.weights = self.cache = self.tokens = self.requests = self.longest = NONE
        self.low = self.high = ""
        if budget is not None:
            self.memory, self.weights = format_gib(budget.device_bytes), format_gib(budget.weight_bytes)
        if budget is not None and capacity is not None and budget.kv_bytes > 0:
            self.cache, self.tokens = format_gib(budget.kv_bytes), f"{capacity.tokens:,}"
            self.low, self.high = f"{capacity.low_tokens:,}", f"{capacity.high_tokens:,}"
            self.requests = _count(capacity.concurrent_requests, "no limit")
            self.longest = _count(capacity.longest_context_tokens, "not stated")


def _name(fit: MemoryFit) -> str:
    devices = fit.deployment.parallelism.devices
    return fit.deployment.accelerator.id + (f" x{devices}" if devices > 1 else "")


def _verdict_word(report: FitReport) -> Text:
    if not report.fit.fits:
        return Text("no", style="bold red")
    if not report.fit.certain:
        return Text("tight", style="bold yellow")
    return Text("yes", style="bold green")


def _count(number: int | None, otherwise: str) -> str:
    return otherwise if number is None else f"{number:,}"


def _bars(reports: Sequence[FitReport], width: int) -> RenderableType:
    drawn = [report for report in reports if report.fit.budget is not None]
    if not drawn:
        return Text()
    largest = max(max(b.device_bytes, b.total_bytes) for b in (report.fit.budget for report in drawn) if b)
    names = max(len(_name(report.fit)) for report in drawn)
    room = max(20, min(width, 110) - names - 14)
    used: dict[str, Use] = {}
    grid = Table.grid(padding=(0, 1))
    for report in drawn:
        budget = report.fit.budget
        if budget is None:
            continue
        parts = _parts(budget)
        used.update({use.label: use for use, amount in parts if amount > 0})
        whole = max(budget.device_bytes, budget.total_bytes)
        bar = stacked_bar(parts, full=whole, width=max(1, round(room * whole / largest)))
        grid.add_row(_name(report.fit), bar, Text(f"{budget.device_bytes / GIB:,.1f} GiB", style="dim"))
    order = [WEIGHTS, EXPERTS, WORK, CACHE, UNUSED, OVER]
    return Group(grid, legend([use for use in order if use.label in used]), Text())


def _parts(budget: MemoryBudget) -> list[tuple[Use, float]]:
    experts = budget.weight_bytes_by_part.get(Part.ROUTED_EXPERTS, 0)
    work = budget.activation_bytes + budget.runtime_bytes + budget.graph_bytes
    parts: list[tuple[Use, float]] = [(WEIGHTS, budget.weight_bytes - experts), (EXPERTS, experts), (WORK, work)]
    parts.append((CACHE, budget.kv_bytes))
    over = max(0, budget.total_bytes - budget.device_bytes)
    if not over:
        return [*parts, (UNUSED, budget.unused_bytes)]
    # Memory beyond the size of the device is drawn in red. It is subtracted from the last uses in the bar.
    kept: list[tuple[Use, float]] = []
    left = float(budget.device_bytes)
    for use, amount in parts:
        kept.append((use, min(amount, left)))
        left -= min(amount, left)
    return [*kept, (OVER, over)]


def _verdict(report: FitReport) -> Text:
    """Describe why the model does not fit, how much memory is missing, and the remedies."""
    obstacle = report.fit.obstacle
    text = Text(f"{_name(report.fit)} does not fit: ", style="red")
    if obstacle is not None:
        short = f" ({format_gib(obstacle.shortfall_bytes)} GiB short)" if obstacle.shortfall_bytes else ""
        text.append(obstacle.reason + short, style="default")
    if report.remedies:
        text.append("\n  what would fit: ", style="dim")
        text.append(", or ".join(remedy.change for remedy in report.remedies), style="default")
    return text


def _logged_kv_tokens(report: FitReport) -> str | None:
    """Say what vLLM logs at start-up, if it counts the cache of layers with windows in another way. Otherwise None."""
    capacity = report.fit.capacity
    if capacity is None or capacity.logged_tokens is None:
        return None
    engine, context = report.fit.deployment.engine, capacity.context_tokens
    ranks = " per rank" if report.fit.deployment.parallelism.dp > 1 else ""
    how = (
        f"it counts what a request of {context:,} tokens may take while it is prefilled"
        if engine.release.reaches(0, 20, 1)
        else "it counts layers with windows as if they kept every token"
    )
    return (
        f"{_name(report.fit)}: vLLM {engine.version} with --max-model-len {context} will log about "
        f"{capacity.logged_tokens:,} tokens of KV cache{ranks} for the same bytes, because {how}."
    )


def _kv_rents(
    reports: Sequence[FitReport], rents: Sequence[DevicePrice | None], per_gib: Sequence[float | None]
) -> RenderableType:
    """Say what a GiB of the memory left for the KV cache costs in rent, and from which offers."""
    texts = [
        f"{_name(report.fit)} ${usd:,.2f}" for report, usd in zip(reports, per_gib, strict=True) if usd is not None
    ]
    if not texts:
        return Text("No rent per GiB of KV cache: nothing is left for it, or the catalog has no price.", style="dim")
    return Group(Text(f"Rent per GiB of KV cache left, $ a month: {', '.join(texts)}"), price_notes(rents))


def _footnote(reports: Sequence[FitReport]) -> Text:
    assumed: dict[str, list[str]] = {}
    for report in reports:
        engine = report.fit.deployment.engine
        settings = f"{engine.memory_fraction:.0%} of device memory, at most {engine.max_batched_tokens:,} tokens"
        settings += f" and {engine.max_sequences:,} requests per step"
        assumed.setdefault(settings, []).append(_name(report.fit))
    pieces = [settings + (f" ({', '.join(ids)})" if len(assumed) > 1 else "") for settings, ids in assumed.items()]
    tiers = ", ".join(sorted({report.tier for report in reports}))
    tokens = f"{reports[0].fit.context_tokens:,}"
    pieces.append(f"requests of {tokens} tokens (--context sets it; preflight checks the model's whole context)")
    return Text(f"Assumed: {'; '.join(pieces)}. Tier: {tiers}; P10-P90 intervals come from engine logs.", style="dim")
