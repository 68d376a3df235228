"""SGLang keeps memory back for one attention backend of AMD, and for no other."""

from dataclasses import replace

import pytest

from penstock.catalog import load_accelerator
from penstock.checkpoint import open_checkpoint
from penstock.fleet import Deployment, Parallelism, Release
from penstock.fleet.engines import engine_defaults
from penstock.fleet.sglang_attention import rocm_backend, static_fraction
from penstock.performance import fit
from penstock.preflight import LaunchChoices, Preflight, PreflightQuestion, check, load_knowledge, parse_command
from penstock.preflight.facts.subject import subject_of


def deployment(
    model: str, accelerator: str = "mi355x", *, version: str = "0.5.18", tp: int = 8, dp: int = 1
) -> Deployment:
    found = load_accelerator(accelerator)
    return Deployment(
        model=open_checkpoint(model).spec,
        accelerator=found,
        engine=engine_defaults("sglang", found, version=version, tp=tp),
        parallelism=Parallelism(tp=tp, dp=dp),
    )


def kept(placed: Deployment) -> float:
    return static_fraction(placed) / placed.engine.memory_fraction


@pytest.mark.parametrize(
    ("model", "tp", "backend"),
    [
        ("llama-3.1-70b", 8, "aiter"),
        ("qwen3.5-397b-a17b", 8, "aiter"),
        ("gpt-oss-120b", 8, "aiter"),
        ("deepseek-r1", 8, "aiter"),
        ("deepseek-r1", 4, "triton"),
        ("deepseek-v3.2", 8, "dsa"),
        ("glm-5.1", 8, "dsa"),
        ("deepseek-v4-pro", 8, "dsv4"),
        ("minimax-m3", 8, "triton"),
        ("gemma-4-31b", 8, "triton"),
    ],
)  # sglang@v0.5.18:python/sglang/srt/server_args.py#L5870-L5942 and arg_groups/overrides.py
def test_the_default_backend_decides_the_workspace(model: str, tp: int, backend: str) -> None:
    placed = deployment(model, tp=tp)
    spec = placed.model
    assert rocm_backend(spec.attention_kinds, spec.architecture, spec.query_heads // tp) == backend
    assert kept(placed) == pytest.approx(0.85 if backend == "aiter" else 1.0)
    assert answer(model, tp=tp).backend.name == backend


def test_only_amd_since_0_4_7_and_only_long_contexts_lose_it() -> None:
    placed = deployment("llama-3.1-70b")
    assert kept(deployment("llama-3.1-70b", version="0.4.7")) == pytest.approx(0.85)
    assert kept(deployment("llama-3.1-70b", version="0.4.6")) == 1.0
    assert kept(deployment("llama-3.1-70b", "h200_sxm")) == 1.0
    short = replace(placed, engine=replace(placed.engine, context_limit_tokens=8192))
    longer = replace(placed, engine=replace(placed.engine, context_limit_tokens=8193))
    assert kept(short) == 1.0
    assert kept(longer) == pytest.approx(0.85)


def answer(
    model: str, command: str | None = None, *, tp: int = 8, on: str = "mi355x", version: str = "0.5.18"
) -> Preflight:
    question = PreflightQuestion(
        subject=subject_of(open_checkpoint(model), model),
        accelerator=load_accelerator(on),
        engine="sglang",
        version=Release(version),
        asked=LaunchChoices(parallelism=Parallelism(tp=tp)),
        launch=None if command is None else parse_command(command)[1],
    )
    return check(question, load_knowledge())


def test_a_named_backend_counts_in_preflight() -> None:
    """Attack: Qwen3.5-397B on four MI325X was refused with triton, for which SGLang keeps nothing back."""
    line = "python3 -m sglang.launch_server --model-path Qwen/Qwen3.5-397B-A17B --tp-size 4"
    usual = answer("qwen3.5-397b-a17b", line, tp=4, on="mi325x")
    triton = answer("qwen3.5-397b-a17b", f"{line} --attention-backend triton", tp=4, on="mi325x")
    both = f"{line} --prefill-attention-backend triton --decode-attention-backend triton"
    split = answer("qwen3.5-397b-a17b", both, tp=4, on="mi325x")
    assert triton.memory.budget is not None
    assert usual.memory.budget is not None
    assert triton.memory.obstacle is None
    assert triton.memory.budget.kv_bytes > usual.memory.budget.kv_bytes * 2
    assert split.memory.budget == triton.memory.budget


def test_a_stated_fraction_is_kept_where_the_launch_says_so() -> None:
    line = "python3 -m sglang.launch_server --model-path meta-llama/Llama-3.1-70B-Instruct --tp-size 8"
    line += " --mem-fraction-static 0.8"
    told = f"SGLANG_AITER_HONOR_EXPLICIT_MEM_FRACTION=1 {line}"
    rooms = [
        answer("llama-3.1-70b", command, version=version).memory.budget
        for command, version in ((line, "0.5.19"), (told, "0.5.19"), (told, "0.5.18"))
    ]
    cut, whole, before = (room.kv_bytes for room in rooms if room is not None)
    assert whole > cut
    assert before == cut


@pytest.mark.parametrize("model", ["llama-3.1-70b", "deepseek-v3.2", "minimax-m3", "deepseek-r1"])
def test_fit_and_preflight_agree(model: str) -> None:
    asked, placed = answer(model), deployment(model)
    assert asked.memory.budget is not None
    found = fit(placed, asked.memory.context_tokens).budget
    assert found is not None
    assert found.kv_bytes == asked.memory.budget.kv_bytes
