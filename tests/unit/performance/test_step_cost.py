"""One step, two ways: the work of an average one and the coefficients of a real one give the same time."""

from dataclasses import replace

import numpy as np
import pytest

from examples import SLOWDOWNS as SLOW
from examples import deployment
from penstock.model.sequence_mixers import EVERYTHING
from penstock.performance.step.step_cost import StepCost, step_cost
from penstock.performance.step.step_work import COMPONENTS, Load, ReplicaWork, pairs

KINDS = [
    "llama-3.1-8b",  # dense
    "gpt-oss-120b",  # a mixture with windows
    "deepseek-r1",  # a mixture with latents
    "glm-5.2",  # latents, indexed
    "minimax-m3",  # blocks, indexed
    "deepseek-v4-flash",  # compressed
    "qwen3.5-397b-a17b",  # recurrent
]


def placed(name: str, dp: int = 1) -> tuple[ReplicaWork, StepCost]:
    work = ReplicaWork(deployment(name, "b200", tp=4, dp=dp))
    return work, step_cost(work, SLOW)


def one_step(decodes: int, context: float, prefill: float, prompt: float) -> Load:
    return Load(
        decodes=np.array([float(decodes)]),
        context_tokens=np.array([float(context)]),
        prefill_tokens=np.array([float(prefill)]),
        prompt_tokens=np.array([float(prompt)]),
    )


def seconds(work: ReplicaWork, load: Load) -> float:
    return float(work.roofline(load)[0] @ SLOW)


@pytest.mark.parametrize("dp", [1, 2])
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(("decodes", "prompt"), [(1, 0), (37, 0), (0, 100), (0, 6000), (1, 1024), (37, 6000)])
def test_the_work_of_a_step_takes_as_long_as_its_coefficients_say(
    name: str, dp: int, decodes: int, prompt: int
) -> None:
    work, cost = placed(name, dp)
    exact = cost.seconds((5000,) * decodes, ((0, prompt),) if prompt else ())
    assert seconds(work, one_step(decodes, 5000, prompt, prompt)) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("name", KINDS)
def test_a_prompt_in_chunks_takes_on_average_what_its_work_says(name: str) -> None:
    work, cost = placed(name)
    chunks = [((start, start + 1000),) for start in range(0, 4000, 1000)]
    mean = sum(cost.seconds((5000,) * 3, chunk) for chunk in chunks) / len(chunks)
    assert seconds(work, one_step(3, 5000, 1000, 4000)) == pytest.approx(mean, rel=1e-12)


@pytest.mark.parametrize("name", KINDS)
def test_a_mean_context_reads_too_much_by_no_more_than_the_limits_hold(name: str) -> None:
    work, cost = placed(name)
    contexts = (50, 500, 5000, 50_000)
    mean = sum(contexts) / len(contexts)
    over = seconds(work, one_step(len(contexts), mean, 0, 1)) - cost.seconds(contexts)
    limited = zip(cost.limits, cost.context_s, strict=True)
    most = sum(len(contexts) * per_token * limit for limit, per_token in limited if limit < EVERYTHING)
    assert -1e-12 <= over <= most + 1e-12


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(
    ("users", "input_tokens", "output_tokens", "carrying", "carried"),
    [
        # Of 400 steps 8 carry a whole prompt; then 24 a third of one; then every one carries two.
        (8, 1000, 400, 8, 1000),
        (8, 3000, 400, 24, 1000),
        (800, 1000, 400, 400, 2000),
    ],
)
def test_a_closed_loop_is_the_average_of_its_steps(
    name: str, users: int, input_tokens: int, output_tokens: int, carrying: int, carried: int
) -> None:
    work, _ = placed(name)
    loop = Load.closed_loop(
        np.array([float(users)]), np.array([float(input_tokens)]), np.array([float(output_tokens)]), 1000
    )
    context = input_tokens + output_tokens / 2
    with_prompt = work.roofline(one_step(users, context, carried, input_tokens))[0]
    without = work.roofline(one_step(users, context, 0, input_tokens))[0]
    average = (carrying * with_prompt + (output_tokens - carrying) * without) / output_tokens
    assert work.roofline(loop)[0] == pytest.approx(average, rel=1e-12)


def test_prompt_tokens_and_drafts_visit_experts_like_any_other() -> None:
    work, _ = placed("deepseek-r1")
    column = COMPONENTS.index("experts")
    mixed = work.roofline(one_step(1, 1024, 1023, 1023))[0][column]
    assert mixed == pytest.approx(work.roofline(one_step(1024, 1024, 0, 1))[0][column])
    drafted = work.roofline(replace(one_step(8, 1024, 0, 1), drafted_tokens=3.0))[0][column]
    assert drafted == pytest.approx(work.roofline(one_step(32, 1024, 0, 1))[0][column])


def test_pairs_are_counted_one_by_one() -> None:
    # Token i sees i - 1/2 tokens on average over itself, and no more than the limit.
    assert pairs(np.array([1000.0]), EVERYTHING)[0] == 1000**2 / 2
    assert pairs(np.array([1000.0]), 128)[0] == 128**2 / 2 + 128 * (1000 - 128)
    assert pairs(np.array([0.0]), 128)[0] == 0


def test_a_factor_by_batch_size_scales_whole_steps_and_is_interpolated() -> None:
    plain = StepCost(step_s=0.01, decode_s=1e-4, prefill_token_s=1e-5)
    bent = replace(plain, batch_factors=(1.0, 1.2, 0.9))
    assert bent.seconds(chunks=((0, 64),)) == plain.seconds(chunks=((0, 64),))
    for requests, factor in ((1, 1.0), (2, 1.2), (4, 0.9), (100, 0.9)):
        assert bent.seconds((10,) * requests) == pytest.approx(factor * plain.seconds((10,) * requests))
    assert 0.9 * plain.seconds((10,) * 3) < bent.seconds((10,) * 3) < 1.2 * plain.seconds((10,) * 3)
