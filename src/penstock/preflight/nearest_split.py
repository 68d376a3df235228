"""Finds the nearest split with which the model runs, if the model fails only because of the requested split."""

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Final

from penstock.fleet import Parallelism
from penstock.preflight.check import check
from penstock.preflight.facts.launch_command import long_name
from penstock.preflight.launch.launch_plan import LaunchPlan
from penstock.preflight.launch.setting import Setting, first_of_each
from penstock.preflight.launch.start_memory import reason_to_cut, with_more_room
from penstock.preflight.preflight_result import Preflight
from penstock.preflight.rules.knowledge import Knowledge
from penstock.preflight.rules.rule import Severity

_MAX_TRIED: Final = 24
_KEPT: Final = "from your command"
_OURS: Final = frozenset(
    {
        *("model-path", "config", "tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size", "ep-size"),
        *("enable-expert-parallel", "enable-dp-attention", "nnodes", "node-rank", "dist-init-addr", "master-addr"),
    }
)
"""Flags of the user's command that the proposal decides."""
_CHOICES: Final = frozenset(
    {
        *("attention-backend", "moe-backend", "moe-runner-backend", "kv-cache-dtype", "quantization", "dtype"),
        *(
            "max-model-len",
            "context-length",
            "gpu-memory-utilization",
            "mem-fraction-static",
            "block-size",
            "page-size",
        ),
        *("max-num-batched-tokens", "chunked-prefill-size", "max-num-seqs", "max-running-requests", "load-format"),
        *("decode-context-parallel-size", "prefill-context-parallel-size"),
        *("page-size", "kv-cache-memory-bytes", "cpu-offload-gb", "speculative-config", "speculative-algorithm"),
    }
)
"""Flags that may be in the way of a launch."""
_ANSWERED_BY_A_SPLIT: Final = {"split", "memory", "context", "nodes", "devices"}
_FACTS_OF_A_SPLIT: Final = ("parallel.", "model.expert_width_per_rank", "model.heads_per_rank")
"""Facts that another split changes, so that a rule with one of them in its condition may not apply there."""


def nearest(answer: Preflight, knowledge: Knowledge) -> Preflight | None:
    """Return the preflight result of the nearest split that passes. Return None if no other split is needed or passes.

    For a user's own command, the launch that preflight proposes for the same devices is tried first. A proposed launch
    that lacks memory is tried with a larger share of it, and with shorter steps, before other splits.
    """
    kinds = {obstacle.kind for obstacle in answer.obstacles}
    if answer.passes:
        return None
    if answer.launch.typed and (ours := check(replace(answer.question, launch=None), knowledge)).passes:
        return _with_kept_flags(ours, answer, knowledge)
    if not _may_pass_with_another_split(answer, kinds):
        return None
    question = answer.question
    if (tuned := _with_more_room(answer, knowledge)) is not None:
        return tuned
    for number, split in enumerate(_candidates(answer, grow=not kinds & {"split", "nodes", "devices"})):
        if number == _MAX_TRIED:
            break
        asked = replace(question.asked, parallelism=split)
        tried = check(replace(question, asked=asked, launch=None), knowledge)
        if tried.passes:
            return _with_kept_flags(tried, answer, knowledge) if answer.launch.typed else tried
    return None


def _may_pass_with_another_split(answer: Preflight, kinds: Collection[str]) -> bool:
    """Return whether every known problem of a launch depends on its split."""
    stops = (*answer.assessment.of(Severity.BLOCKER), *answer.assessment.of(Severity.SILENT_WRONG))
    by_rule = all(any(name.startswith(_FACTS_OF_A_SPLIT) for name in stop.because) for stop in stops)
    return by_rule and set(kinds) <= _ANSWERED_BY_A_SPLIT


def _with_more_room(answer: Preflight, knowledge: Knowledge) -> Preflight | None:
    """Return the proposed launch with a larger share of the memory, or shorter steps, if it passes with these.

    If these settings do not leave room for the model's whole context, the context is cut too.
    """
    asked = answer.question.asked.context_tokens
    plan = with_more_room(answer.plan, answer.memory.deployment, asked)
    if plan == answer.plan:
        return None
    cut = check(replace(answer.question, launch=plan.as_launch()), knowledge).cut
    if cut is not None and asked is None:
        plan = plan.with_flags(Setting(name="max-model-len", value=str(cut.tokens), why=reason_to_cut(cut)))
    return _passing(answer, plan, knowledge)


def _with_kept_flags(ours: Preflight, answer: Preflight, knowledge: Knowledge) -> Preflight:
    """Return the proposed launch with the flags and variables of the user's command, as far as it passes with them.

    Flags that were found wrong, or that the proposal sets itself, are left out. Flags that choose kernels, formats and
    sizes are added one by one, and each stays if the launch still passes.
    """
    # A flag with one dash too few is kept with two.
    wrong = {flag.name.lstrip("-").partition(" ")[0] for flag in answer.flags if flag.instead != f"-{flag.name}"}
    set_by_us = {name for flag in ours.plan.flags for name in (flag.name, long_name(flag.name))}
    left_out = wrong | set_by_us | _OURS
    typed = [
        Setting(name=name, value=None if name in answer.launch.bare else value, why=_KEPT)
        for name, value in answer.launch.flags.items()
        if name not in left_out
    ]
    variables = tuple(
        Setting(name=name, value=value, why=_KEPT)
        for name, value in answer.launch.environment.items()
        if name not in wrong and not name.endswith("VISIBLE_DEVICES")
    )
    plan = replace(ours.plan, variables=first_of_each((*ours.plan.variables, *variables)))
    kept = _passing(ours, plan.with_flags(*(flag for flag in typed if flag.name not in _CHOICES)), knowledge) or ours
    for flag in typed:
        if flag.name in _CHOICES:
            kept = _passing(kept, kept.plan.with_flags(flag), knowledge) or kept
    return kept


def _passing(answer: Preflight, plan: LaunchPlan, knowledge: Knowledge) -> Preflight | None:
    checked = check(replace(answer.question, launch=plan.as_launch()), knowledge)
    return replace(checked, plan=plan) if checked.passes else None


def _candidates(answer: Preflight, *, grow: bool) -> Iterator[Parallelism]:
    """Yield other splits of the same devices, then splits of more or fewer devices.

    Splits of more devices come first, unless the obstacle is the split itself or the number of nodes.
    """
    asked, accelerator = answer.question.asked.parallelism, answer.question.accelerator
    mixture = answer.question.subject.model.experts is not None
    if mixture and not asked.expert_parallel:
        yield replace(asked, expert_parallel=True)
    yield from _of(asked.devices, accelerator.node.devices, mixture=mixture)
    node = accelerator.node.devices
    larger = [count for count in (1, 2, 4, 8, 16, 32) if count > asked.devices and count <= max(node, 4 * node)]
    smaller = [count for count in (16, 8, 4, 2, 1) if count < asked.devices]
    for count in (*larger, *smaller) if grow else (*smaller, *larger):
        yield from _of(count, node, mixture=mixture)


def _of(devices: int, node: int, *, mixture: bool) -> Iterator[Parallelism]:
    """Yield splits of a number of devices.

    First comes tensor parallelism within a node, with one pipeline stage per node. Then, for a mixture of experts,
    comes the same split with expert parallelism. Last come two pipeline stages within one node.
    """
    within = min(devices, node)
    if devices % within:
        return
    yield Parallelism(tp=within, pp=devices // within)
    if mixture and within > 1:
        yield Parallelism(tp=within, pp=devices // within, expert_parallel=True)
    if devices == within and within > 2:  # two halves of two are single devices
        yield Parallelism(tp=within // 2, pp=2)
