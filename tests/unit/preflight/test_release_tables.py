"""Which release has a flag or value: read ones exactly, others as far as their neighbours tell."""

import pytest

from penstock.api.preflight import preflight
from penstock.fleet import Release
from penstock.preflight import Preflight, Readiness, load_knowledge, parse_command
from penstock.preflight.launch.release_flags import check_flags, expand_abbreviations, one_edit_apart
from penstock.preflight.rules.history import EngineFlags, History, turns_on

KNOWLEDGE = load_knowledge()
LLAMA = "vllm serve meta-llama/Llama-3.3-70B-Instruct -tp 8"


def ask(flags: str, version: str, model: str | None = None) -> Preflight:
    return preflight(model, "b200:8", engine_version=version, command=f"{LLAMA} {flags}").answers[0]


@pytest.mark.parametrize(
    ("flags", "before", "since"),
    [
        ("--max-num-queued-reqs 64", "0.28.0", "0.29.0"),
        ("--max-num-active-seqs 64", "0.30.0", "0.31.0"),
        ("--tool-call-parser deepseek_v41 --enable-auto-tool-choice", "0.29.0", "0.30.0"),
        ("--kv-cache-dtype nvfp4_4over6", "0.27.1", "0.28.0"),
        ("--attention-backend TRITON_FLASH_ATTN", "0.29.0", "0.30.0"),
        ("--monokernel true", "0.32.0", "0.33.0"),
    ],
)
def test_what_came_after_0_27_has_its_own_first_release(flags: str, before: str, since: str) -> None:
    assert f"exists from {since} only" in ask(flags, before).obstacles[0].text
    assert ask(flags, since).passes
    assert ask(flags, "0.33.0").passes


def test_a_cache_of_sparse_mla_serves_sparse_mla_only() -> None:
    line = "vllm serve deepseek-ai/DeepSeek-V3.2 -tp 8 --kv-cache-dtype nvfp4_ds_mla"
    assert preflight(None, "b200:8", engine_version="0.30.0", command=line).good
    assert not preflight(None, "h200:8", engine_version="0.30.0", command=line).good
    assert {stop.kind for stop in ask("--kv-cache-dtype nvfp4_ds_mla", "0.30.0").obstacles} == {"backend"}


@pytest.mark.parametrize("dtype", ["nvfp4", "int8_per_token_head", "turboquant_k8v4"])
def test_a_cache_dtype_that_backends_take_or_that_was_not_read_is_not_refused(dtype: str) -> None:
    assert ask(f"--kv-cache-dtype {dtype}", "0.32.0").passes


@pytest.mark.parametrize("words", ["membind", "cpunodebind", "physcpubind", "json-arg"])
def test_words_of_the_help_text_are_no_flags(words: str) -> None:
    assert not ask(f"--{words} 0", "0.32.0").passes


def history(**entries: list[str]) -> History:
    return History(entries=entries, read=tuple(Release(text) for text in ("0.8.0", "0.27.1", "0.32.0")))


@pytest.mark.parametrize(
    ("name", "version", "presence"),
    [
        ("old", "0.5.0", "has"),
        ("old", "0.40.0", "has"),
        ("new", "0.27.1", "too_new"),
        ("new", "0.28.0rc1", "not_known"),
        ("new", "0.30.0", "not_known"),
        ("new", "0.32.0", "has"),
        ("new", "0.33.0", "has"),
        ("gone", "0.27.1", "has"),
        ("gone", "0.30.0", "not_known"),
        ("gone", "0.32.0", "removed"),
        ("none", "0.30.0", None),
    ],
)
def test_between_two_releases_read_a_change_is_not_known(name: str, version: str, presence: str | None) -> None:
    table = history(old=["0.8.0"], new=["0.32.0"], gone=["0.8.0", "0.32.0"])
    assert table.presence(name, Release(version)) == presence


def test_a_flag_that_is_not_known_is_a_warning_that_names_both_neighbours() -> None:
    known = EngineFlags(flags=history(old=["0.8.0"], new=["0.32.0"]), variables=None, negations=history(x=["0.8.0"]))
    launch = parse_command("vllm serve m --new 1")[1]
    (finding,) = check_flags(launch, Release("0.30.0"), known)
    assert finding.message == "--new: not known whether 0.30.0 has it (0.32.0 does, 0.27.1 does not)"
    assert not finding.certain


def test_a_candidate_between_two_releases_read_is_a_risk_and_passes() -> None:
    answer = ask("--max-num-queued-reqs 64", "0.29.0rc1")
    assert (answer.readiness, answer.passes) == (Readiness.RISK, True)
    assert "not known whether 0.29.0rc1 has it" in answer.possible_obstacles[0].text


@pytest.mark.parametrize("version", ["0.32.0", "0.33.0", "0.40.0"])
@pytest.mark.parametrize("typed", ["--tool-cal-parser hermes", "--tool-call-praser hermes", "--max-model-lem 8192"])
def test_a_flag_one_letter_from_a_known_one_stops_every_release(typed: str, version: str) -> None:
    answer = ask(typed, version)
    assert not answer.passes
    assert "did you mean --" in answer.obstacles[0].text


def test_a_flag_far_from_any_is_a_warning_in_a_release_that_was_not_read() -> None:
    assert ask("--brand-new-thing 1", "0.40.0").readiness is Readiness.RISK
    assert ask("--brand-new-thing 1", "0.33.0").readiness is Readiness.BLOCKED


def test_0_33_turns_switches_off_with_disable() -> None:
    answer = ask("--disable-prefix-caching --disable-log-requests", "0.33.0")
    assert answer.passes
    assert {"no-enable-prefix-caching", "no-enable-log-requests"} <= set(answer.launch.flags)
    (stop,) = ask("--disable-prefix-caching", "0.32.0").obstacles
    assert stop.text.endswith("did you mean --no-enable-prefix-caching?")


def test_the_opposite_is_never_suggested() -> None:
    known = KNOWLEDGE.flags["vllm"]
    version = Release("0.32.0")
    for name in known.flags.names_in(version):
        if not name.startswith("enable-"):
            continue
        launch = parse_command(f"vllm serve m --disable-{name.removeprefix('enable-')}")[1]
        for finding in check_flags(expand_abbreviations(launch, known, version), version, known):
            assert finding.instead is None or not turns_on(finding.instead.removeprefix("--")), finding


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        ("tool-cal", "tool-call", True),
        ("toll", "tool", True),
        ("otol", "tool", True),
        ("tool", "tool", False),
        ("tl", "tool", False),
        ("loot", "tool", False),
    ],
)
def test_one_edit(one: str, other: str, apart: bool) -> None:  # noqa: FBT001 - a table
    assert one_edit_apart(one, other) is one_edit_apart(other, one) is apart
