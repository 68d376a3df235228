"""The work of a step: arithmetic anybody can check, and laws for every model and accelerator."""

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import deployment, model
from penstock.catalog import load_accelerator
from penstock.catalog.accelerator import Accelerator, Precision
from penstock.errors import DeploymentError
from penstock.performance.prediction.predict_deployment import predict
from penstock.performance.prediction.speculation import Speculation
from penstock.performance.step.datapath import compute_precision
from penstock.performance.step.kernel_launches import link_bytes_per_s
from penstock.performance.step.step_work import COMPONENTS, Load, ReplicaWork

law = settings(max_examples=60, deadline=None)
models = st.sampled_from(
    [
        "llama-3.1-8b",
        "llama-3.1-70b",
        "deepseek-r1",
        "gpt-oss-120b",
        "qwen3.5-397b-a17b",
        "kimi-k3",
        "glm-5.2",
        "deepseek-v4-pro",
    ]
)
accelerators = st.sampled_from(["mi300x", "mi355x", "h100", "h200", "b200"])


def load(decodes: float = 1, context: float = 1024, prefill: float = 0, prompt: float = 1) -> Load:
    return Load(
        decodes=np.array([decodes]),
        context_tokens=np.array([context]),
        prefill_tokens=np.array([prefill]),
        prompt_tokens=np.array([prompt]),
    )


def light(work: ReplicaWork, at: Load) -> dict[str, float]:
    return dict(zip(COMPONENTS, work.roofline(at)[0].tolist(), strict=True))


def test_one_request_of_a_140_gb_model_is_bounded_by_bandwidth() -> None:
    # 5.3 TB/s over 140 GB of weights: 37.9 tokens a second, before anything else.
    work = ReplicaWork(deployment("llama-3.1-70b", "mi300x"))
    seconds = light(work, load(context=1))["weights"]
    embedding = 128_256 * 8192 * 2
    assert 1 / seconds == pytest.approx(5.3e12 / (70_553_706_496 * 2 - embedding), rel=0.01)
    assert predict(
        deployment("llama-3.1-70b", "mi300x"),
        "vllm",
        input_tokens=1,
        output_tokens=1024,
        concurrency=1,
        efficiencies=None,
    ).output_tokens_per_s.value == pytest.approx(37.9, rel=0.02)


def test_the_experts_read_are_the_distinct_ones() -> None:
    work = ReplicaWork(deployment("deepseek-r1", "h200", tp=8))
    one, many = light(work, load(1))["experts"], light(work, load(10_000))["experts"]
    assert one / many == pytest.approx(8 / 256, rel=0.001)
    # 32 tokens visit 1 - (1 - 8/256)^32 = 64% of the experts.
    assert light(work, load(32))["experts"] / many == pytest.approx(1 - (1 - 8 / 256) ** 32, rel=0.001)


def test_a_mesh_gives_few_peers_few_links() -> None:
    two, eight = (link_bytes_per_s(load_accelerator("mi300x"), tp) for tp in (2, 8))
    assert (two, eight) == (64e9, 448e9)
    assert link_bytes_per_s(load_accelerator("h100"), 2) == 450e9
    assert link_bytes_per_s(load_accelerator("h100"), 16) == 400e9 / 8  # two machines


def test_windows_and_states_do_not_grow_with_the_context() -> None:
    for name in ("gpt-oss-120b", "qwen3.5-397b-a17b"):
        work = ReplicaWork(deployment(name, "b200", tp=8))
        short, long = light(work, load(64, 1024))["cache"], light(work, load(64, 65_536))["cache"]
        assert long < 64 * short


def test_sparse_attention_reads_the_chosen_tokens_and_all_index_keys() -> None:
    dense, sparse = (ReplicaWork(deployment(name, "h200", tp=8)) for name in ("deepseek-r1", "deepseek-v3.2"))
    assert light(sparse, load(8, 131_072))["cache"] < light(dense, load(8, 131_072))["cache"] / 4


def test_a_format_without_a_datapath_is_widened_never_invented() -> None:
    assert compute_precision("fp8", load_accelerator("a100")) is Precision.BF16
    assert compute_precision("mxfp4", load_accelerator("mi355x")) is Precision.FP4
    assert compute_precision("nvfp4", load_accelerator("h100")) is Precision.BF16


def test_what_a_part_cannot_multiply_is_what_it_emulates() -> None:
    stored = ("mxfp4", "bf16", "fp8", "nvfp4", "int4")
    assert load_accelerator("a100").emulated_formats(stored) == ("mxfp4", "fp8", "nvfp4")
    assert load_accelerator("mi300x").emulated_formats(stored) == ("mxfp4", "nvfp4")
    assert load_accelerator("mi355x").emulated_formats(stored) == ("nvfp4",)


def faster(accelerator: Accelerator, by: float, what: str) -> Accelerator:
    if what == "bandwidth":
        return replace(
            accelerator, memory=replace(accelerator.memory, hbm_bytes_per_s=accelerator.memory.hbm_bytes_per_s * by)
        )
    return replace(
        accelerator, dense_flops_per_s={kind: rate * by for kind, rate in accelerator.dense_flops_per_s.items()}
    )


@law
@given(
    name=models,
    accelerator=accelerators,
    what=st.sampled_from(["bandwidth", "flops"]),
    by=st.floats(1, 10),
    decodes=st.floats(1, 512),
    context=st.floats(1, 1e5),
    prefill=st.floats(0, 8192),
)
def test_more_bandwidth_or_flops_never_makes_a_step_slower(
    name: str, accelerator: str, what: str, by: float, decodes: float, context: float, prefill: float
) -> None:
    placed = deployment(name, accelerator, tp=8)
    at = load(decodes, context, prefill, context)
    before = ReplicaWork(placed).roofline(at)
    after = ReplicaWork(replace(placed, accelerator=faster(placed.accelerator, by, what))).roofline(at)
    assert (after <= before * (1 + 1e-9)).all()


@law
@given(
    name=models,
    accelerator=accelerators,
    tp=st.sampled_from([1, 2, 4]),
    decodes=st.floats(1, 512),
    context=st.floats(1, 1e5),
)
def test_more_devices_never_slow_anything_but_the_collective(
    name: str, accelerator: str, tp: int, decodes: float, context: float
) -> None:
    at = load(decodes, context, 512, context)
    few = light(ReplicaWork(deployment(name, accelerator, tp=tp)), at)
    many = light(ReplicaWork(deployment(name, accelerator, tp=2 * tp)), at)
    for column in ("weights", "experts", "cache", "compute", "prefill"):
        assert many[column] <= few[column] * (1 + 1e-6), column


def test_a_hundred_thousand_steps_take_less_than_a_second() -> None:
    work = ReplicaWork(deployment("deepseek-r1", "mi300x", tp=8))
    count = 200_000
    random = np.random.default_rng(1)
    many = Load(
        decodes=random.uniform(1, 256, count),
        context_tokens=random.uniform(1, 1e5, count),
        prefill_tokens=random.uniform(0, 8192, count),
        prompt_tokens=random.uniform(1, 1e4, count),
    )
    began = time.perf_counter()
    slowdowns = np.ones(len(COMPONENTS))
    seconds = work.roofline(many) @ slowdowns
    taken = time.perf_counter() - began
    assert seconds.shape == (count,)
    assert count / taken > 100_000


def test_a_model_larger_than_memory_still_has_a_bound() -> None:
    assert model("llama-3.1-405b").weight_bytes > load_accelerator("h100").memory.hbm_bytes
    answer = predict(
        deployment("llama-3.1-405b", "h100"),
        "vllm",
        input_tokens=128,
        output_tokens=128,
        concurrency=1,
        efficiencies=None,
    )
    assert not answer.memory.fits
    assert answer.tier == "roofline"


@law
@given(
    name=models,
    accelerator=accelerators,
    concurrency=st.floats(1, 512),
    prompt=st.floats(16, 16_384),
    answer=st.floats(16, 4096),
)
def test_a_prediction_is_never_above_the_roofline(
    name: str, accelerator: str, concurrency: float, prompt: float, answer: float
) -> None:
    from penstock.performance.shipped.shipped_runs import shipped_efficiencies  # noqa: PLC0415

    answered = predict(
        deployment(name, accelerator, tp=8),
        "sglang",
        input_tokens=prompt,
        output_tokens=answer,
        concurrency=concurrency,
        efficiencies=shipped_efficiencies(),
    )
    assert answered.tpot_s.value >= answered.roofline_s
    assert answered.tpot_s.low >= answered.roofline_s
    assert answered.tpot_s.low <= answered.tpot_s.value <= answered.tpot_s.high
    assert answered.step.seconds == pytest.approx(answered.tpot_s.value)


def test_speculation_yields_what_it_accepts_and_costs_what_it_verifies() -> None:
    def tpot(drafted: int, accepted: float, concurrency: int) -> float:
        return predict(
            deployment("deepseek-r1", "h200", tp=8),
            "sglang",
            input_tokens=1024,
            output_tokens=1024,
            concurrency=concurrency,
            efficiencies=None,
            speculation=Speculation(drafted_tokens=drafted, accepted_tokens=accepted),
        ).tpot_s.value

    assert tpot(0, 1.0, 1) > tpot(3, 2.5, 1)
    # A mixture reads more experts for drafted tokens, so the gain is less than what is accepted.
    assert tpot(3, 2.5, 1) > tpot(0, 1.0, 1) / 2.5
    with pytest.raises(DeploymentError, match="yields 1 to 4"):
        tpot(3, 5.0, 1)
