"""Renders a preflight: findings by severity, the serving configuration, undecided rules and the launch command."""

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from penstock.fleet.serving_engines import ENGINES, serving_engine
from penstock.preflight.executed_speed import Speed
from penstock.preflight.launch.images import floating_tag
from penstock.preflight.launch.launch_plan import LaunchPlan, command_lines
from penstock.preflight.launch.recipe import Recipe
from penstock.preflight.launch.start_memory import keeps_whole_context
from penstock.preflight.predictions.weight_kernels import KernelClass
from penstock.preflight.preflight_result import Preflight, Readiness
from penstock.preflight.rules.condition import Value
from penstock.preflight.rules.findings import Finding, Undetermined
from penstock.preflight.rules.rule import Severity
from penstock.report.preflight.headline import (
    READINESS,
    STYLES,
    command_text,
    describe_nodes,
    harmless_flags,
    headline,
    memory_sentence,
    name_instead,
    obstacle_sentences,
    speed_line,
)
from penstock.units import GIB, format_gib

_CITED = {"moved": "moved or changed", "gone": "are gone"}
_SHOWN_BYTES = GIB // 20
_SHORT: Mapping[Readiness, str] = {
    Readiness.SILENT_WRONG: "WRONG",
    Readiness.BLOCKED: "no",
    Readiness.RISK: "risk",
    Readiness.SLOW: "slow",
    Readiness.RUNS: "yes",
    Readiness.UNDETERMINED: "?",
}


def render_preflight(answer: Preflight, speed: Speed | None = None, instead: Preflight | None = None) -> RenderableType:
    """Draw one preflight, and the speed if it was requested.

    If the requested split does not run, the nearest split that runs is drawn too.
    """
    pieces: list[RenderableType] = [headline(answer)]
    for severity in Severity:
        stops, found = obstacle_sentences(answer, severity), answer.assessment.of(severity)
        if stops or found:
            pieces.append(Text(f"\n{severity} ({len(stops) + len(found)})", style=STYLES[severity]))
            pieces += [Padding(Text(f"• {stop}"), (0, 0, 0, 2)) for stop in stops]
            pieces += [_finding(finding) for finding in found]
    heading = (
        "serving configuration, if it started" if answer.readiness is Readiness.BLOCKED else "serving configuration"
    )
    pieces += [Text(f"\n{heading}", style="bold"), _predictions(answer, speed)]
    if open_questions := answer.assessment.open_questions:
        pieces += [Text("\nundecided rules", style="bold"), _undetermined_rules(open_questions)]
    pieces += [Text("\nlaunch", style="bold"), _launch(answer, instead)]
    return Group(*pieces)


def _finding(finding: Finding) -> RenderableType:
    rule = finding.rule
    grid = Table.grid(padding=(0, 1))
    grid.add_column()
    grid.add_column(overflow="fold")
    if rule.severity is Severity.INFO:
        grid.add_row("•", Text(f"{rule.message} ({rule.id})"))
        return Padding(grid, (0, 0, 0, 2))
    because = ", ".join(f"{name} {shown_value(value)}" for name, value in finding.because.items())
    grounds = Text(f"{rule.id} ({rule.grounds}); because {because}", style="dim")
    for source in rule.sources:
        grounds.append(f"\n{source.url}")
    if finding.cited_lines in {"moved", "gone"}:
        grounds.append(
            f"\nthe lines that it cites {_CITED[finding.cited_lines]} in this release: check whether it still holds"
        )
    if finding.unchecked_since is not None:
        grounds.append(f"\nlast checked in {finding.unchecked_since}; later releases were not read")
    grid.add_row("•", Group(Text(rule.message), Text(f"fix: {rule.fix}"), grounds))
    return Padding(grid, (0, 0, 0, 2))


def shown_value(value: Value) -> str:
    """Format a fact's value."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, frozenset):
        return "+".join(sorted(value)) or "none"
    return str(value)


def _predictions(answer: Preflight, speed: Speed | None) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for step in answer.dialect:
        grid.add_row(f"FP8, {step.group}", f"{step.treatment}: {step.note}")
    for group in answer.kernels:
        if group.stored_bytes < _SHOWN_BYTES and group.kernel is KernelClass.NATIVE:
            continue
        style = "red" if group.kernel is KernelClass.NONE else ""
        share = f"{format_gib(group.stored_bytes)} GiB {group.format}"
        grid.add_row(group.group, Text(f"{share}: {group.kernel} ({group.by})", style=style))
    grid.add_row("attention", _attention(answer))
    if answer.graphs is not None:
        mode = answer.graphs
        grid.add_row("graphs", f"decode {mode.decode}, mixed steps {mode.mixed}: {mode.why}")
    if answer.aiter is not None:
        found = answer.aiter
        heads = f"{found.heads} heads" + (
            f" (padded to {found.padded_heads})" if found.padded_heads != found.heads else ""
        )
        has = "has an assembly kernel" if found.found else "has no assembly kernel"
        known = ", ".join(str(count) for count in found.available_heads)
        grid.add_row("AITER MLA", f"{heads}, {found.kv} cache: {has} (available for {known} heads)")
    grid.add_row("memory", memory_sentence(answer))
    if answer.cut is not None:
        keeps = " or ".join(keeps_whole_context(answer.memory.deployment)) or "not possible within 16 machines"
        grid.add_row("context", f"to keep all {answer.cut.model_tokens:,} tokens: {keeps}")
    if (line := speed_line(answer, speed)) is not None:
        grid.add_row("speed", line.removeprefix("speed "))
    if answer.recipe is not None:
        started = answer.readiness is not Readiness.BLOCKED and not answer.launch.typed
        grid.add_row("recipe", _recipe(answer.recipe, followed=started))
    for name, text in _evidence(answer):
        grid.add_row(name, text)
    return Padding(grid, (0, 0, 0, 2))


def _evidence(answer: Preflight) -> Iterator[tuple[str, str]]:
    """Yield the published measurements of the model on the accelerator, and what is not known of the engine."""
    for served in answer.served:
        formats, counts = "/".join(served.weights), "/".join(str(count) for count in served.devices)
        label = ENGINES[serving_engine(served.engine)].label
        yield "measured", f"{label}, {formats} on {counts} devices: {served.image} (InferenceX, {served.until})"
    yield from (("not known", unknown) for unknown in answer.unknown)


def _attention(answer: Preflight) -> str:
    backend = answer.backend
    passed = ", ".join(f"{name} ({reason})" for name, reason in backend.rejected.items())
    over = f"; not used: {passed}" if passed else ""
    if backend.name is not None:
        return backend.name + (f", block size {backend.block}" if backend.block else "") + over
    return (
        f"no backend supports it{over}"
        if backend.determined
        else "undetermined: the engine's selection of a backend was not read"
    )


def _recipe(recipe: Recipe, *, followed: bool) -> str:
    since = f", from vLLM {recipe.since}" if recipe.since else ""
    old = " (this release is older)" if recipe.too_old else ""
    spread = "; it uses expert parallelism (--ep)" if recipe.spreads_experts else ""
    if recipe.status == "unsupported":
        return f"vLLM's recipe calls this chip unsupported{since}; its settings are left out"
    settings = "; its settings are in the launch" if followed and (recipe.flags or recipe.variables) else ""
    return f"vLLM's recipe: {recipe.status} on this chip{since}{old}{settings}{spread}"


def _undetermined_rules(entries: Sequence[Undetermined]) -> RenderableType:
    """Draw the undecided rules, grouped by the information that would decide them."""
    by_deed: dict[str, list[str]] = {}
    for entry in entries:
        facts = ", ".join(name.removeprefix("host.") for name in entry.missing if name.startswith("host."))
        deed = "; ".join(dict.fromkeys(entry.missing.values())) + (f" ({facts})" if facts else "")
        by_deed.setdefault(deed, []).append(f"{entry.rule.id} ({entry.rule.severity})")
    lines = [f"{deed}: {', '.join(rules)}" for deed, rules in by_deed.items()]
    return Padding(Text("\n".join(lines), style="dim"), (0, 0, 0, 2))


def _launch(answer: Preflight, instead: Preflight | None) -> RenderableType:
    pieces: list[RenderableType] = []
    if answer.launch.typed:
        verdict = "" if answer.passes else "; it is not expected to serve"
        pieces.append(Text(f"  your command, as parsed{verdict}", style="dim"))
        pieces.append(command_text(command_lines(answer.launch.typed)))
        pieces += [Text(f"  ! {note}", style="yellow") for note in answer.notes]
    pieces += [Text(f"  ! {flag.message}", style="yellow") for flag in harmless_flags(answer)]
    if instead is not None:
        pieces += [Text(f"  {name_instead(answer, instead)}", style="bold"), _plan(instead.plan)]
    elif answer.readiness is Readiness.BLOCKED and not answer.launch.typed:
        pieces.append(Text("  no working launch is known; apply the fixes above first", style="dim"))
    elif not answer.launch.typed:
        if not answer.passes:
            pieces.append(Text("  this launch was checked and is not expected to serve", style="dim"))
        pieces.append(_plan(answer.plan))
    return Group(*pieces)


def _plan(plan: LaunchPlan) -> RenderableType:
    pieces: list[RenderableType] = []
    if plan.nodes > 1:
        pieces.append(Text(f"  {describe_nodes(plan)}", style="dim"))
    if floating_tag(plan.image):
        pieces.append(Text(f"  {plan.image} is the newest nightly build; its tag names no release", style="dim"))
    docker = plan.docker()
    pieces.append(command_text(plan.bare()))
    missing = f"no image: {plan.engine} {plan.version} was not found among its releases" if plan.unreleased else None
    pieces.append(
        command_text(docker) if docker else Text(f"  {missing or 'no official image for this device'}", style="dim")
    )
    reasons = [(variable.name, variable.why) for variable in plan.variables]
    reasons += [(f"--{flag.name}", flag.why) for flag in plan.flags]
    grid = Table.grid(padding=(0, 2))
    for name, why in reasons:
        grid.add_row(Text(name, style="dim"), Text(why, style="dim"))
    if reasons:
        pieces.append(Padding(grid, (0, 0, 0, 2)))
    return Group(*pieces)


def render_matrix(answers: Sequence[Preflight]) -> RenderableType:
    """Draw a matrix for one model. The matrix has a row per accelerator, with a verdict and a reason per engine."""
    engines = list(dict.fromkeys((answer.question.engine, str(answer.question.version)) for answer in answers))
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("accelerator", no_wrap=True)
    for engine, version in engines:
        table.add_column(f"{engine} {version}", overflow="fold")
    rows: dict[str, list[Text]] = {}
    for answer in answers:
        devices = answer.question.asked.parallelism.devices
        rows.setdefault(answer.question.accelerator.id + f" x{devices}", []).append(_cell(answer))
    for name, cells in rows.items():
        table.add_row(name, *cells)
    model = answers[0].question.subject.model.name if answers else ""
    return Group(Text(model, style="bold"), table)


def _cell(answer: Preflight) -> Text:
    _, style = READINESS[answer.readiness]
    text = Text(_SHORT[answer.readiness], style=style)
    reason = _reason(answer)
    return text.append(f"  {reason}", style="not bold dim") if reason else text


def _reason(answer: Preflight) -> str:
    """Return a phrase for the most important cause of the verdict."""
    if answer.obstacles:
        return answer.obstacles[0].text.split(";")[0][:70]
    worst = answer.assessment.of(Severity.BLOCKER) or answer.assessment.of(Severity.SILENT_WRONG)
    if worst:
        return worst[0].rule.id
    risks = answer.assessment.of(Severity.WARNING)
    if risks or answer.unsupported_by_recipe:
        return risks[0].rule.id if risks else "vLLM's recipe calls this chip unsupported"
    if answer.possible_obstacles:
        return answer.possible_obstacles[0].text.split(";")[0][:70]
    wide = [group for group in answer.kernels if answer.lags(group)]
    if wide:
        return f"{wide[0].format} {wide[0].kernel}"
    slow = answer.assessment.of(Severity.SLOW)
    return slow[0].rule.id if slow else ""
