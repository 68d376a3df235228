"""Draws the verdict of a preflight: its first lines, its colours, and commands that can be copied."""

from collections.abc import Mapping
from textwrap import indent
from typing import Final

from rich.text import Text

from penstock.catalog import find_model, model_ids
from penstock.fleet.serving_engines import ENGINES
from penstock.preflight.executed_speed import LOAD, Speed, undetermined_speed
from penstock.preflight.facts.situation import Subject
from penstock.preflight.launch.launch_plan import HEAD_NODE, LaunchPlan, ReplicaPlace
from penstock.preflight.launch.release_flags import FlagFinding
from penstock.preflight.packs.pack import LEARNABLE
from penstock.preflight.predictions.weight_kernels import KernelClass
from penstock.preflight.preflight_result import Preflight, Readiness
from penstock.preflight.rules.condition import Unknown
from penstock.preflight.rules.fact_names import VOCABULARY
from penstock.preflight.rules.rule import Severity
from penstock.units import format_gib

STYLES: Mapping[Severity, str] = {
    Severity.SILENT_WRONG: "bold magenta",
    Severity.BLOCKER: "bold red",
    Severity.WARNING: "bold yellow",
    Severity.SLOW: "yellow",
    Severity.INFO: "cyan",
}
READINESS: Mapping[Readiness, tuple[str, str]] = {
    Readiness.SILENT_WRONG: ("runs, but gives wrong answers", "bold magenta"),
    Readiness.BLOCKED: ("does not run", "bold red"),
    Readiness.RISK: ("runs{with}, with a risk", "bold yellow"),
    Readiness.SLOW: ("runs{with}, slower than the chip allows", "yellow"),
    Readiness.RUNS: ("runs{with}; no known problem", "bold green"),
    Readiness.UNDETERMINED: ("undetermined", "bold"),
}
_STATED_BY_HOST: Final = frozenset({"launch.install", *(name for name in VOCABULARY if name.startswith("host."))})
"""Facts that `--host` states."""
_COUNTED: Mapping[Severity, str] = {
    Severity.SILENT_WRONG: "silent-wrong",
    Severity.BLOCKER: "blocking",
    Severity.WARNING: "at risk",
    Severity.SLOW: "slow",
    Severity.INFO: "to note",
}


def headline(answer: Preflight) -> Text:
    """Draw the verdict, the number of findings, and what the engine is if parts of it were not read."""
    question = answer.question
    devices = question.asked.parallelism.devices
    where = question.accelerator.id + (f" x{devices} ({question.asked.parallelism})" if devices > 1 else "")
    if answer.plan.nodes > 1:
        where += f" on {answer.plan.nodes} machines"
    words, style = READINESS[answer.readiness]
    text = Text(model_name(question.subject), style="bold")
    read = answer.newer_than_read
    unread = "" if read is None else f" (this release was not read; checked as {read})"
    if answer.older_than_read is not None:
        unread = f" (this release was not read; the first that was is {answer.older_than_read})"
    text.append(f" on {where}, {question.engine} {question.version}{unread}: ", style="not bold")
    text.append(words.replace("{with}", _context_note(answer)) + _undetermined_part(answer), style=style)
    if read is not None and question.engine in LEARNABLE:
        learn = f"penstock preflight learn {question.engine}=={question.version}"
        text.append(f"\nto read this release: {learn}", style="bold yellow")
    checked = f"{answer.assessment.rules_checked} rules for {question.engine} {question.version} on this chip"
    text.append(f"\n{checked}: {_counts(answer)}", style="not bold dim")
    if answer.unknown:
        text.append(f"\n{question.engine}: {question.profile.what}", style="not bold")
    return text


def _undetermined_part(answer: Preflight) -> str:
    """Name what leaves the verdict undetermined, or return nothing if the verdict is another one."""
    if answer.readiness is not Readiness.UNDETERMINED:
        return ""
    question, support = answer.question, answer.architecture
    if isinstance(answer.facts["chip"], Unknown) or answer.facts["platform"] == "other":
        return f": no rule covers {question.accelerator.id}"
    if support.since is None:
        return f": no release of {question.engine} that was read lists {support.registered}"
    if answer.launch.slices:
        return ": how much memory the MIG slices have is not known"
    if answer.uncounted_cache is not None:
        return f": how many bytes a KV cache of {answer.uncounted_cache} takes was not read"
    formats = dict.fromkeys(group.format for group in answer.kernels if group.kernel is KernelClass.UNDETERMINED)
    return (
        f": which kernels {question.engine} has for {' and '.join(formats)} on {question.accelerator.id} was not read"
    )


def undecided_sentences(answer: Preflight) -> list[str]:
    """Name the rules that are undecided, and the facts to state, with one sentence per set of facts."""
    rules: dict[str, list[str]] = {}
    for entry in answer.assessment.open_questions:
        host = [f"--host {name.rpartition('.')[2]}=..." for name in entry.missing if name in _STATED_BY_HOST]
        steps = [f"state {' and '.join(host)}, or use --host here"] if host else []
        steps += [why for name, why in entry.missing.items() if name not in _STATED_BY_HOST]
        rules.setdefault("; ".join(dict.fromkeys(steps)), []).append(entry.rule.id)
    return [f"{' and '.join(names)}; to decide, {settle}" for settle, names in rules.items()]


def unlisted_reasons(answer: Preflight) -> list[tuple[Severity, str]]:
    """Return the reasons for the verdict that are no finding: the recipe, and weights without native kernels."""
    found = []
    if answer.unsupported_by_recipe:
        found.append((Severity.WARNING, "vLLM's recipe calls this chip unsupported; its settings are left out"))
    for group in answer.kernels:
        if answer.lags(group) and not answer.assessment.of(Severity.SLOW):
            text = f"{group.format} {group.group} have no kernels of this chip's own here: {group.kernel} ({group.by})"
            found.append((Severity.SLOW, text))
    return found


def model_name(subject: Subject) -> str:
    """Name the model. If a repository was matched to a known architecture, name the repository and the architecture."""
    name = subject.model.name
    own = name not in model_ids() or subject.name.count("/") != 1 or find_model(name).repo == subject.name
    return name if own else f"{subject.name.rpartition('/')[2]} (same architecture as {name})"


def _context_note(answer: Preflight) -> str:
    cut, capacity, limit = answer.cut, answer.memory.capacity, answer.question.subject.model.max_context_tokens
    longest = None if capacity is None else capacity.longest_context_tokens
    if answer.question.profile.server == "sglang" and longest is not None and limit is not None and longest < limit:
        return f" with room for {longest:,} of its {limit:,} tokens of context"
    if cut is None or answer.question.launch is not None:
        return ""
    return f" with {cut.tokens:,} of its {cut.model_tokens:,} tokens of context"


def _counts(answer: Preflight) -> str:
    """Return the number of findings of each severity."""
    found = {severity: len(answer.assessment.of(severity)) for severity in Severity}
    found[Severity.BLOCKER] += len(answer.obstacles)
    found[Severity.WARNING] += len(answer.possible_obstacles)
    for severity, _ in unlisted_reasons(answer):
        found[severity] += 1
    words = [f"{count} {_COUNTED[severity]}" for severity, count in found.items() if count]
    ignored, open_questions = len(harmless_flags(answer)), len(answer.assessment.open_questions)
    words += [f"{ignored} ignored"] if ignored else []
    return ", ".join(words or ["nothing found"]) + (f"; {open_questions} undecided" if open_questions else "")


def harmless_flags(answer: Preflight) -> list[FlagFinding]:
    """Return the wrong flags and environment variables that do not stop the launch."""
    return [flag for flag in answer.flags if not flag.stops]


def command_text(command: str) -> Text:
    """Draw a command so that it can be copied. No line is wrapped or cut, and nothing follows a trailing backslash."""
    return Text(indent(command, "  "), style="green", no_wrap=True, overflow="ignore")


def obstacle_sentences(answer: Preflight, severity: Severity) -> list[str]:
    """Return the obstacles that no rule describes: those that stop the launch, or those that may."""
    if severity is Severity.BLOCKER:
        return [f"{stop.kind}: {stop.text}" for stop in answer.obstacles]
    doubts = answer.possible_obstacles if severity is Severity.WARNING else ()
    narrow = answer.narrow if answer.memory.obstacle is not None else None
    return [f"{one.kind}: {'by the median estimate ' if one == narrow else ''}{one.text}" for one in doubts]


def memory_sentence(answer: Preflight) -> str:
    """Say what the weights take and what is left for the KV cache, or what is in the way."""
    memory = answer.memory
    if answer.uncounted_cache is not None and memory.budget is not None and not memory.obstacle_is("weights"):
        held = format_gib(memory.budget.weight_bytes)
        return f"{held} GiB of weights per device; what a KV cache in {answer.uncounted_cache} holds is undetermined"
    if memory.obstacle is not None:
        return memory.obstacle.reason
    capacity = memory.capacity
    if memory.budget is None or capacity is None:
        return "fits"
    held = format_gib(memory.budget.weight_bytes)
    stored = memory.deployment.chosen_cache_dtype.value
    text = f"{held} GiB of weights per device, {capacity.tokens:,} tokens of KV cache in {stored}"
    if capacity.logged_tokens is not None and ENGINES[answer.question.engine].server == "vllm":
        text += f" (vLLM will log about {capacity.logged_tokens:,})"
    text += f", for requests of up to {memory.context_tokens:,} tokens"
    if not memory.certain and answer.question.profile.server not in {"vllm", "sglang"}:
        text += f"; tight: if the engine refuses that at start-up, use {capacity.safe_context_tokens:,}"
    return text


def speed_line(answer: Preflight, speed: Speed | None) -> str | None:
    """Say how fast the launch is predicted to be, or why that is undetermined. None if there is nothing to say."""
    if speed is not None:
        return speed_sentence(speed)
    reason = undetermined_speed(answer)
    return None if reason is None else f"speed {reason}"


def speed_sentence(speed: Speed) -> str:
    """Say how fast the launch is predicted to be, and what missing kernels and slow settings cost."""
    rate, (prompt, output, requests) = speed.output_tokens_per_s, LOAD
    text = (
        f"{rate.value:,.0f} output tok/s ({rate.low:,.0f}-{rate.high:,.0f}, {speed.prediction.tier}) with {requests} "
        f"requests of {prompt}/{output} tokens"
    )
    if (drafts := speed.prediction.speculation) is not None:
        text += f"; {drafts.drafted_tokens} drafted tokens per step give {drafts.accepted_tokens:.1f} tokens"
    lost = speed.lost_fraction
    if lost is not None and lost >= 0.005:  # less would be shown as 0%
        text += f"; formats without their own kernels cost {lost:.0%} of it"
    for cost in speed.costs.priced:
        low, middle, high = speed.costs.lost_fractions(cost)
        text += f"; {cost.setting} costs {middle:.0%} ({low:.0%}-{high:.0%})"
    for setting in speed.costs.unpriced:
        text += f"; what {setting} changes is not known and not in this figure"
    return text


def name_instead(answer: Preflight, instead: Preflight) -> str:
    """Name the launch that is printed instead of the checked one."""
    split = instead.question.asked.parallelism
    if split == answer.question.asked.parallelism and answer.launch.typed:
        return "launch that preflight proposes"
    if split == answer.question.asked.parallelism:
        return "the same split runs with more of the memory, or with shorter steps"
    cut = "" if instead.cut is None else f", {instead.cut.tokens:,} tokens of context"
    return f"the nearest split that runs: {split.devices} x {instead.question.accelerator.id} ({split}){cut}"


def describe_replicas(place: ReplicaPlace) -> str:
    """Say which devices and ports the other replicas on the machine take."""
    count, port = len(place.devices), place.port
    step = "device" if count == 1 else f"{count} devices"
    return (
        f"the first of {place.replicas} replicas on a machine; each of the others takes the next {step} and the next "
        f"port ({port + 1} to {port + place.replicas - 1})"
    )


def describe_nodes(plan: LaunchPlan) -> str:
    """Say on which machines of a replica the command runs."""
    headless = plan.engine in {"vllm", "vllm-atom"} and plan.has("node-rank", "data-parallel-address")
    others = "; the others add --headless" if headless else ""
    return f"on each of {plan.nodes} machines; {HEAD_NODE} is the address of the first{others}"
