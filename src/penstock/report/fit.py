"""How is "does it fit?" shown? One table across accelerators, a bar of each device, and what would help."""

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.model import ModelSpec, Part
from penstock.performance.memory_fit import MemoryBudget, MemoryFit
from penstock.performance.minimum import FitReport
from penstock.report.bars import CACHE, EXPERTS, OVER, UNUSED, WEIGHTS, WORK, Use, legend, stacked_bar
from penstock.units import GIB, format_gib, format_params


def render_fit(model: ModelSpec, reports: Sequence[FitReport], context_tokens: int, width: int) -> RenderableType:
    """Draw the whole answer."""
    pieces: list[RenderableType] = [_headline(model, reports), _table(reports, context_tokens), Text()]
    pieces += [_bars(reports, width)]
    for report in reports:
        if report.remedies:
            pieces.append(_remedies(report))
    pieces += [_footnote(reports)]
    pieces += [Text(f"note: {note}", style="dim") for note in model.notes]
    return Group(*pieces)


def print_fit(console: Console, model: ModelSpec, reports: Sequence[FitReport], context_tokens: int) -> None:
    """Print to the terminal."""
    console.print(render_fit(model, reports, context_tokens, console.width))


def _headline(model: ModelSpec, reports: Sequence[FitReport]) -> Text:
    text = Text(model.name, style="bold")
    size = format_params(model.total_params)
    if model.experts is not None:
        size += f", {format_params(model.active_params)} active"
    text.append(f"  {size} parameters, {format_gib(model.weight_bytes)} GiB as ", style="default not bold")
    text.append(" + ".join(model.formats), style="default not bold")
    kv = {report.fit.deployment.chosen_cache_dtype.value for report in reports}
    engines = {f"{report.fit.deployment.engine.name} {report.fit.deployment.engine.version}" for report in reports}
    text.append(f"; KV {'/'.join(sorted(kv))}; {', '.join(sorted(engines))}\n", style="default not bold")
    return text


def _table(reports: Sequence[FitReport], context_tokens: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("accelerator")
    table.add_column("split")
    table.add_column("fits")
    for name in ("memory\nGiB", "weights\nGiB", "KV cache\nGiB", "KV tokens\n(P10-P90)"):
        table.add_column(name, justify="right")
    table.add_column(f"requests\nof {context_tokens:,}", justify="right")
    table.add_column("longest\ncontext", justify="right")
    table.add_column("fewest\ndevices", justify="right")
    for report in reports:
        table.add_row(*_row(report))
    return table


def _row(report: FitReport) -> list[str | Text]:
    fit = report.fit
    devices = fit.deployment.parallelism.devices
    name = fit.deployment.accelerator.id + (f" x{devices}" if devices > 1 else "")
    fewest = str(report.fewest_devices) if report.fewest_devices else "-"
    verdict = Text("yes", style="bold green") if fit.fits else Text("no", style="bold red")
    budget, capacity = fit.budget, fit.capacity
    if budget is None or capacity is None:
        return [name, str(fit.deployment.parallelism), verdict, "-", "-", "-", "-", "-", "-", fewest]
    room = budget.kv_bytes > 0
    span = f"{capacity.low_tokens:,}-{capacity.high_tokens:,}"
    return [
        name,
        str(fit.deployment.parallelism),
        verdict,
        format_gib(budget.device_bytes),
        format_gib(budget.weight_bytes),
        format_gib(budget.kv_bytes) if room else "-",
        Text.assemble(f"{capacity.tokens:,}", (f"\n{span}", "dim")) if room else "-",
        f"{capacity.concurrent_requests:,}" if room else "-",
        f"{capacity.longest_context_tokens:,}" if room else "-",
        fewest,
    ]


def _bars(reports: Sequence[FitReport], width: int) -> RenderableType:
    drawn = [report for report in reports if report.fit.budget is not None]
    if not drawn:
        return Text()
    largest = max(max(b.device_bytes, b.total_bytes) for b in (report.fit.budget for report in drawn) if b)
    names = max(len(report.fit.deployment.accelerator.id) for report in drawn)
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
        grid.add_row(
            report.fit.deployment.accelerator.id, bar, Text(f"{budget.device_bytes / GIB:,.1f} GiB", style="dim")
        )
    order = [WEIGHTS, EXPERTS, WORK, CACHE, UNUSED, OVER]
    return Group(grid, legend([use for use in order if use.label in used]), Text())


def _parts(budget: MemoryBudget) -> list[tuple[Use, float]]:
    experts = budget.weight_bytes_by_part.get(Part.ROUTED_EXPERTS, 0)
    work = budget.activation_bytes + budget.runtime_bytes + budget.graph_bytes
    parts: list[tuple[Use, float]] = [(WEIGHTS, budget.weight_bytes - experts), (EXPERTS, experts), (WORK, work)]
    over = max(0, budget.total_bytes - budget.device_bytes)
    if not over:
        return [*parts, (CACHE, budget.kv_bytes), (UNUSED, budget.unused_bytes)]
    # What exceeds the device is drawn in red, taken off the end of what asked for it.
    kept: list[tuple[Use, float]] = []
    left = float(budget.device_bytes)
    for use, amount in parts:
        kept.append((use, min(amount, left)))
        left -= min(amount, left)
    return [*kept, (OVER, over)]


def _remedies(report: FitReport) -> Text:
    fit = report.fit
    where = fit.deployment.accelerator.id
    text = Text(f"{where} does not fit: ", style="red")
    if fit.obstacle is not None:
        text.append(_reason(fit), style="default")
    text.append("\n  what would: ", style="dim")
    text.append(", or ".join(remedy.change for remedy in report.remedies), style="default")
    return text


def _reason(fit: MemoryFit) -> str:
    if fit.obstacle is None:
        return ""
    short = f" ({format_gib(fit.obstacle.shortfall_bytes)} GiB short)" if fit.obstacle.shortfall_bytes else ""
    return fit.obstacle.reason + short


def _footnote(reports: Sequence[FitReport]) -> Text:
    assumed: dict[str, list[str]] = {}
    for report in reports:
        engine = report.fit.deployment.engine
        settings = f"{engine.memory_fraction:g} of memory, steps of {engine.max_batched_tokens:,} tokens"
        settings += f" and {engine.max_sequences:,} requests"
        assumed.setdefault(settings, []).append(report.fit.deployment.accelerator.id)
    pieces = [settings + (f" ({', '.join(ids)})" if len(assumed) > 1 else "") for settings, ids in assumed.items()]
    tiers = ", ".join(sorted({report.tier for report in reports}))
    return Text(f"assumed: {'; '.join(pieces)}. Tier: {tiers}; method and error in docs/methodology.md", style="dim")
