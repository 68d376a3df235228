"""Finds the nearest split with which the model runs, if the model fails only because of the requested split."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from penstock.fleet import Parallelism
from penstock.preflight.check import check
from penstock.preflight.preflight_result import Preflight
from penstock.preflight.rules.knowledge import Knowledge

_MAX_TRIED: Final = 24
_ANSWERED_BY_A_SPLIT: Final = {"split", "memory", "context", "nodes"}


def nearest(answer: Preflight, knowledge: Knowledge) -> Preflight | None:
    """Return the preflight result of the nearest split that passes. Return None if no other split is needed or passes.

    For a user's own command, the launch that preflight proposes for the same devices is tried first.
    """
    kinds = {obstacle.kind for obstacle in answer.obstacles}
    if answer.passes:
        return None
    if answer.launch.typed and (ours := check(replace(answer.question, launch=None), knowledge)).passes:
        return ours
    if not kinds & _ANSWERED_BY_A_SPLIT or kinds - _ANSWERED_BY_A_SPLIT:
        return None
    question = answer.question
    for number, split in enumerate(_candidates(answer, grow=not kinds & {"split", "nodes"})):
        if number == _MAX_TRIED:
            break
        asked = replace(question.asked, parallelism=split)
        tried = check(replace(question, asked=asked, launch=None), knowledge)
        if tried.passes:
            return tried
    return None


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
