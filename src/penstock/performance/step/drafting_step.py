"""Computes the cost of a step with drafts, which runs the draft layers and then verifies several tokens per request."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import accumulate

import numpy as np

from penstock.model import Part
from penstock.performance.memory.sharding import device_bytes
from penstock.performance.step.first_token import LoopLoad, decode_step
from penstock.performance.step.step_cost import StepCost, step_cost
from penstock.performance.step.step_work import COMPONENTS, Array, ReplicaWork


def expected_tokens(acceptances: Iterable[float]) -> float:
    """Return the expected tokens per step: 1 + p1 + p1 p2 + ..., with one term per drafted token.

    Each acceptance is that of a drafted token after all drafted tokens before it were accepted.
    """
    return 1.0 + sum(accumulate(acceptances, lambda before, acceptance: before * acceptance))


def drafting_step(work: ReplicaWork, loop: LoopLoad, accepted_tokens: float) -> Array:
    """Return the work of the average step of a model that drafts with its own layers.

    The result is the work of verification, plus one draft pass per drafted token.
    """
    verified = work.roofline(loop.average(accepted_tokens))
    return np.asarray(verified + loop.drafted_tokens * _draft_pass(work, loop))


def drafting_cost(work: ReplicaWork, slowdowns: Array, drafted_tokens: int, accepted_tokens: float) -> StepCost:
    """Return the cost of a drafting step, divided by the tokens that the step yields per request.

    After the division, a caller can count one token per step. The mean time per token is right, although a real
    drafting step yields several tokens at once. Prompt tokens cost the same as without drafts.
    """
    verifying = slowdowns.copy()
    verifying[COMPONENTS.index("compute")] *= 1 + drafted_tokens
    plain, verified = step_cost(work, slowdowns), step_cost(work, verifying)
    per_layer = drafted_tokens / work.layers
    head_s = slowdowns[COMPONENTS.index("weights")] * _head_bytes(work) / work.bytes_per_s
    message_s = slowdowns[COMPONENTS.index("collectives")] * work.collective_token_s / work.deployment.parallelism.dp
    passes_s = per_layer * (plain.step_s - slowdowns[COMPONENTS.index("step")] - head_s) + drafted_tokens * head_s
    reads = zip(verified.context_s, plain.context_s, strict=True)
    return replace(
        verified,
        step_s=float(verified.step_s + passes_s) / accepted_tokens,
        decode_s=float(verified.decode_s + drafted_tokens * message_s + per_layer * plain.decode_s) / accepted_tokens,
        expert_s=verified.expert_s * (1 + per_layer) / accepted_tokens,
        expert_miss=verified.expert_miss ** (1 + drafted_tokens),
        context_s=tuple((whole + per_layer * layer) / accepted_tokens for whole, layer in reads),
        experts_decode_s=(verified.experts_decode_s + per_layer * plain.experts_decode_s) / accepted_tokens,
    )


def _draft_pass(work: ReplicaWork, loop: LoopLoad) -> Array:
    """Return the work of drafting one token for every request: one average layer, and the whole output head.

    Draft layers of published checkpoints have the shape of the model's own layers. A draft pass does not have the fixed
    cost of a step.
    """
    whole = decode_step(work, replace(loop, drafted_tokens=0.0))
    drafted = whole / work.layers
    head_s = _head_bytes(work) / work.bytes_per_s
    drafted[:, COMPONENTS.index("weights")] += head_s * (1 - 1 / work.layers)
    drafted[:, COMPONENTS.index("step")] = 0.0
    return np.asarray(drafted)


def _head_bytes(work: ReplicaWork) -> float:
    """Return the bytes of the output head on a device. A tied head has the bytes of the embedding."""
    weights = work.deployment.model.weights
    heads = [weight for weight in weights if weight.part is Part.LM_HEAD]
    heads = heads or [weight for weight in weights if weight.part is Part.EMBEDDING]
    return sum(device_bytes(weight, work.deployment) for weight in heads)
