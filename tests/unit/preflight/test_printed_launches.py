"""The law of printed launches: what preflight prints, preflight accepts as a command."""

from dataclasses import replace
from itertools import product

import pytest

from penstock.catalog import load_accelerator
from penstock.checkpoint import open_checkpoint
from penstock.fleet import Parallelism, Release
from penstock.fleet.serving_engines import ServingEngine
from penstock.preflight import LaunchChoices, Preflight, PreflightQuestion, check, load_knowledge, parse_command
from penstock.preflight.facts.subject import smallest_split, subject_of
from penstock.preflight.launch.flag_values import check_values
from penstock.preflight.launch.release_flags import expand_abbreviations
from penstock.preflight.nearest_split import nearest
from penstock.preflight.rules.rule import Severity

KNOWLEDGE = load_knowledge()
MODELS = (
    *("llama-3.1-8b", "qwen3.5-397b-a17b", "gpt-oss-120b", "gemma-3-27b", "deepseek-r1", "deepseek-v3.2"),
    *("deepseek-v4-flash", "glm-5.1", "glm-5.2-fp8", "kimi-k2.5", "minimax-m3", "qwen3-next-80b"),
)
ACCELERATORS = ("mi300x", "mi355x", "h100_sxm", "h200_sxm", "b200_sxm")
RELEASES: tuple[tuple[ServingEngine, str], ...] = (
    *(("vllm", release) for release in ("0.23.0", "0.27.1", "0.32.0", "0.33.0")),
    *(("sglang", release) for release in ("0.5.11", "0.5.18", "0.5.23")),
)
STOPS = (Severity.BLOCKER, Severity.SILENT_WRONG)


def refusals(answer: Preflight) -> set[str]:
    rules = {finding.rule.id for severity in STOPS for finding in answer.assessment.of(severity)}
    return rules | {obstacle.text for obstacle in answer.obstacles}


def asked_again(answer: Preflight, command: str) -> Preflight:
    """Ask about a printed command as a user would paste it."""
    server, version = answer.question.profile.server, answer.question.version
    launch = expand_abbreviations(parse_command(command)[1], KNOWLEDGE.flags[server], version)
    return check(replace(answer.question, launch=launch), KNOWLEDGE)


def accepts(answer: Preflight) -> None:
    printed = (answer.plan.bare(), answer.plan.docker())
    for command in printed:
        if command is not None:
            assert refusals(asked_again(answer, command)) == set(), command


@pytest.mark.parametrize("model", MODELS)
def test_what_preflight_prints_it_accepts(model: str) -> None:
    subject, printed = subject_of(open_checkpoint(model), model), 0
    sampled = list(product(ACCELERATORS, RELEASES))[MODELS.index(model) % 3 :: 3]
    for part, (engine, release) in sampled:
        accelerator = load_accelerator(part)
        split = smallest_split(subject, accelerator, None, engine)
        question = PreflightQuestion(
            subject=subject,
            accelerator=accelerator,
            engine=engine,
            version=Release(release),
            asked=LaunchChoices(parallelism=split),
        )
        answer = check(question, KNOWLEDGE)
        found = answer if answer.passes else nearest(answer, KNOWLEDGE)
        if found is not None:
            accepts(found)
            printed += 1
    assert printed >= 4


def test_a_launch_does_not_keep_drafts_that_a_rule_blocks() -> None:
    """Attack: the launch printed instead kept two drafted tokens, with which vLLM 0.26 stops on AITER's MLA."""
    line = (
        "VLLM_ROCM_USE_AITER=1 vllm serve deepseek-ai/DeepSeek-R1 --tensor-parallel-size 8 --block-size 1"
        """ --max-model-len 32768 --speculative-config '{"method": "mtp", "num_speculative_tokens": %d}'"""
    )
    question = PreflightQuestion(
        subject=subject_of(open_checkpoint("deepseek-r1"), "deepseek-r1"),
        accelerator=load_accelerator("mi300x"),
        engine="vllm",
        version=Release("0.26.0"),
        asked=LaunchChoices(parallelism=Parallelism(tp=8)),
    )
    two, one = (check(replace(question, launch=parse_command(line % drafts)[1]), KNOWLEDGE) for drafts in (2, 1))
    assert "model-aiter-mla-drafts" in refusals(two)
    assert "model-aiter-mla-drafts" not in refusals(one)
    instead = nearest(two, KNOWLEDGE)
    assert instead is not None
    accepts(instead)


@pytest.mark.parametrize(
    ("flags", "fix"),
    [
        ("--block-size 8", "leave --block-size out"),
        ("--attention-backend FLASH_ATTN --block-size 8", "leave --block-size out"),
        ("--attention-backend TURBOQUANT", "leave --attention-backend out"),
    ],
)
def test_a_refused_backend_names_what_to_change(flags: str, fix: str) -> None:
    question = PreflightQuestion(
        subject=subject_of(open_checkpoint("llama-3.1-8b"), "llama-3.1-8b"),
        accelerator=load_accelerator("h100_sxm"),
        engine="vllm",
        version=Release("0.32.0"),
        asked=LaunchChoices(parallelism=Parallelism()),
        launch=parse_command(f"vllm serve meta-llama/Llama-3.1-8B-Instruct {flags}")[1],
    )
    (obstacle,) = check(question, KNOWLEDGE).obstacles
    assert fix in obstacle.text
    assert obstacle.text.count("leave --") == 1


@pytest.mark.parametrize(
    ("on", "release", "cache", "passes"),
    [
        ("h200_sxm", "0.23.0", "fp8_e4m3", False),
        ("h200_sxm", "0.23.0", "fp8", True),
        ("h200_sxm", "0.30.0", "fp8_e4m3", True),
        ("b200_sxm", "0.23.0", "fp8_e4m3", True),
    ],
)  # vllm@v0.23.0:vllm/v1/attention/backends/mla/flashmla_sparse.py#L92-L97 and flashinfer_mla_sparse_sm90.py of 0.30.0
def test_sparse_mla_takes_an_fp8_cache_by_name(on: str, release: str, cache: str, passes: bool) -> None:  # noqa: FBT001
    question = PreflightQuestion(
        subject=subject_of(open_checkpoint("glm-5.2-fp8"), "glm-5.2-fp8"),
        accelerator=load_accelerator(on),
        engine="vllm",
        version=Release(release),
        asked=LaunchChoices(parallelism=Parallelism(tp=8)),
        launch=parse_command(f"vllm serve zai-org/GLM-5.2-FP8 -tp 8 --max-model-len 32768 --kv-cache-dtype {cache}")[1],
    )
    kinds = {obstacle.kind for obstacle in check(question, KNOWLEDGE).obstacles}
    assert ("backend" not in kinds) is passes


@pytest.mark.parametrize(
    ("config", "refused"),
    [
        ('{"method": "mtp"}', True),
        ('{"method": "mtp", "num_speculative_tokens": 1}', False),
        ('{"method": "mtp", "model": "deepseek-ai/DeepSeek-R1"}', False),
        ('{"method": "suffix"}', False),
    ],
)  # vllm@v0.27.1:vllm/config/speculative.py#L703, #L1089, #L1289-L1294
def test_drafts_of_a_model_of_its_own_need_their_number(config: str, refused: bool) -> None:  # noqa: FBT001
    line = f"vllm serve deepseek-ai/DeepSeek-R1 -tp 8 --speculative-config '{config}'"
    found = check_values(parse_command(line)[1], "vllm", Release("0.27.1"), KNOWLEDGE)
    assert any("num_speculative_tokens" in flag.message for flag in found) is refused
