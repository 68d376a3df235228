"""The printed speed is of the printed launch: settings that published figures price, and those that none does."""

import pytest

import penstock
from penstock.errors import DeploymentError
from penstock.performance.prediction.predict_deployment import Prediction
from penstock.preflight import Preflight, load_knowledge, parse_command
from penstock.preflight.executed_speed import Speed, undetermined_speed
from penstock.preflight.facts.drafting import Drafting, drafting_of
from penstock.preflight.launch_costs import LaunchCost, LaunchCosts
from penstock.preflight.rules._rule_files import load_table
from penstock.preflight.rules.rule import Reference

LLAMA = "vllm serve meta-llama/Llama-3.1-70B-Instruct -tp 4"
LONG = "vllm serve Qwen/Qwen3-Coder-480B-A35B-Instruct -tp 8 --enable-expert-parallel"
AITER = "VLLM_ROCM_USE_AITER=1 "


def asked(command: str, on: str = "mi300x:8") -> tuple[Preflight, Speed]:
    found = penstock.preflight(on=on, command=command)
    (answer,), (speed,) = found.answers, found.speeds
    assert speed is not None, answer.obstacles
    return answer, speed


def rate(command: str, on: str = "mi300x:8") -> float:
    return asked(command, on)[1].output_tokens_per_s.value


def test_attention_backends_aiter_graphs_step_size_and_kv_dtype_each_change_the_speed() -> None:
    settings = (
        "--attention-backend ROCM_AITER_FA",
        "--attention-backend TRITON_ATTN",
        "--enforce-eager",
        "--max-num-batched-tokens 512",
        "--kv-cache-dtype fp8",
    )
    rates = {flags: rate(f"{AITER}{LLAMA} {flags}") for flags in settings} | {"off": rate(LLAMA)}
    assert len({round(value) for value in rates.values()}) == len(rates)
    assert rates["--attention-backend TRITON_ATTN"] < rates["--attention-backend ROCM_AITER_FA"]
    assert rates["--enforce-eager"] < rates["--attention-backend ROCM_AITER_FA"]
    assert rates["off"] < rates["--attention-backend ROCM_AITER_FA"] < rates["--kv-cache-dtype fp8"]


@pytest.mark.parametrize(("on", "published"), [("mi300x", 3.82), ("mi325x", 4.36), ("mi355x", 3.61)])
def test_the_published_slowdown_of_rocm_attn_comes_back_at_its_load(on: str, published: float) -> None:
    (prediction,) = penstock.predict(
        "qwen3-235b-a22b-fp8",
        f"{on}:8",
        engine="vllm",
        ep=True,
        input_tokens=10_000,
        output_tokens=1000,
        concurrency=64,
    ).predictions
    assert isinstance(prediction, Prediction)
    low, middle, high = (
        value * 94 * 10_500
        for value in load_table("speed")["rocm_attn_without_its_kernel"]["seconds_per_token_and_layer"]
    )
    cost = LaunchCost(setting="ROCM_ATTN", extra_s=(low, middle, high), sources=())
    costs = LaunchCosts(step_s=prediction.step.seconds, priced=(cost,), unpriced=())
    slowed = costs.slow_down(prediction.output_tokens_per_s)
    assert slowed.value < prediction.output_tokens_per_s.value
    fastest, slowest = (1 / (1 - lost) for lost in (costs.lost_fractions(cost)[0], costs.lost_fractions(cost)[2]))
    assert fastest * 0.9 < published < slowest * 1.1


def test_rocm_attn_costs_only_where_its_own_kernel_is_skipped() -> None:
    _, long = asked(f"{AITER}{LONG} --attention-backend ROCM_ATTN")
    (cost,) = long.costs.priced
    assert cost.setting == "attention by ROCM_ATTN"
    assert long.costs.lost_fractions(cost)[1] > 0.2
    assert asked(f"{AITER}{LONG} --attention-backend ROCM_ATTN --max-model-len 131072")[1].costs.priced == ()
    assert asked(f"{AITER}{LLAMA} --attention-backend ROCM_ATTN")[1].costs.priced == ()


def test_the_printed_launch_is_the_fastest_of_the_named_backends() -> None:
    answer = penstock.preflight("qwen3-coder-480b", "mi300x:8")
    (proposed,), (speed,) = answer.answers, answer.speeds
    assert speed is not None
    assert proposed.launch.flags["attention-backend"] == "ROCM_AITER_FA"
    assert speed.costs.priced == ()
    for backend in ("ROCM_ATTN", "TRITON_ATTN"):
        assert rate(f"{AITER}{LONG} --attention-backend {backend}") < rate(
            f"{AITER}{LONG} --attention-backend ROCM_AITER_FA"
        )


@pytest.mark.parametrize(
    ("model", "on", "backend"),
    [
        ("qwen3.5-122b-a10b", "mi325x:8", "ROCM_AITER_UNIFIED_ATTN"),
        ("glm-4.7", "mi355x:8", "ROCM_AITER_FA"),
        ("llama-3.1-70b", "mi300x:8", None),
        ("qwen3-coder-480b", "h200:8", None),
    ],
)
def test_a_backend_is_named_only_where_others_found_it_faster(model: str, on: str, backend: str | None) -> None:
    (answer,) = penstock.preflight(model, on).answers
    assert answer.launch.flags.get("attention-backend") == backend
    assert answer.passes


def test_what_no_figure_prices_is_said() -> None:
    line = "vllm serve meta-llama/Llama-3.1-70B-Instruct -tp 4 --attention-backend FLASHINFER"
    _, speed = asked(line, "h100:4")
    assert speed.costs.unpriced == ("--attention-backend FLASHINFER",)
    assert speed.output_tokens_per_s == speed.prediction.output_tokens_per_s


def test_graphs_cost_nothing_where_a_step_takes_longer_than_the_host() -> None:
    lost = {}
    for tp in (2, 8):
        _, speed = asked(f"vllm serve meta-llama/Llama-3.1-70B-Instruct -tp {tp} --enforce-eager", "h200:8")
        (cost,) = speed.costs.priced
        lost[tp] = speed.costs.lost_fractions(cost)
    # More devices make steps shorter, and the host takes its time all the same.
    assert lost[2][1] < lost[8][1]
    assert all(low <= middle <= high for low, middle, high in lost.values())


def test_every_figure_has_a_source_and_an_order() -> None:
    for entry in load_knowledge().speed.values():
        (low, middle, high) = next(values for name, values in entry.items() if name != "sources")
        assert 0 <= low <= middle <= high
        assert entry["sources"]
        assert all(Reference(source).url for source in entry["sources"])


def test_the_speed_of_emulated_weights_is_undetermined_in_preflight_and_in_predict() -> None:
    found = penstock.preflight("deepseek-r1-0528-mxfp4", "mi300x:8")
    (answer,), (speed,) = found.answers, found.speeds
    assert answer.passes
    assert speed is None
    assert (undetermined_speed(answer) or "").startswith("undetermined: vllm converts all mxfp4 weights")
    with pytest.raises(DeploymentError, match="undetermined: vllm converts all mxfp4 weights"):
        penstock.predict("deepseek-r1-0528-mxfp4", "mi300x:8")
    native = penstock.preflight("deepseek-r1-0528-mxfp4", "mi355x:8")
    assert native.speeds[0] is not None
    assert undetermined_speed(native.answers[0]) is None


R1 = "VLLM_ROCM_USE_AITER=1 vllm serve deepseek-ai/DeepSeek-R1 -tp 8"


@pytest.mark.parametrize(
    ("command", "own"),
    [
        (R1 + """ --speculative-config '{"method": "mtp", "num_speculative_tokens": 3}'""", True),
        (R1 + " --speculative-config.method deepseek_mtp --speculative-config.num_speculative_tokens 3", True),
        (R1 + """ --speculative-config '{"method": "ngram", "num_speculative_tokens": 3}'""", False),
        (R1 + """ --speculative-config '{"model": "me/small", "num_speculative_tokens": 3}'""", False),
    ],
)
def test_drafting_in_a_pasted_line_changes_memory_and_speed_or_is_said_not_to(command: str, own: bool) -> None:  # noqa: FBT001
    plain, plain_speed = asked(R1)
    answer, speed = asked(command)
    budget, without = answer.memory.budget, plain.memory.budget
    assert budget is not None
    assert without is not None
    assert (budget.weight_bytes > without.weight_bytes) == own
    assert (speed.output_tokens_per_s.value > plain_speed.output_tokens_per_s.value) == own
    assert any(setting.startswith("drafting by ") for setting in speed.costs.unpriced) != own
    assert any("me/small is not counted" in note for note in answer.notes) == ("me/small" in command)


def test_sglang_drafts_with_the_checkpoints_own_layers_unless_a_drafter_is_named() -> None:
    line = "python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-R1 --tp 8 --speculative-algorithm "
    own, named = (parse_command(line + end)[1] for end in ("NEXTN", "EAGLE3 --speculative-draft-model-path a/b"))
    assert drafting_of(own) == Drafting(method="NEXTN", tokens=0, own_layers=True, model=None)
    assert drafting_of(named) == Drafting(method="EAGLE3", tokens=0, own_layers=False, model="a/b")
