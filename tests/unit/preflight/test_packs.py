"""Data packs: what one release accepts is read exactly, kept with a checksum, and used by preflight."""

import json
import shutil
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import preflight
from penstock.api.preflight_packs import learn, list_packs
from penstock.errors import CatalogError, PenstockError, UsageError
from penstock.fleet.release import Release
from penstock.preflight import Readiness, load_knowledge
from penstock.preflight.packs.cited_lines import line_marks, shipped_marks, standings
from penstock.preflight.packs.learn_release import learn_folder, learn_wheel
from penstock.preflight.packs.pack import Pack, read_pack, write_pack
from penstock.preflight.packs.pack_files import load_extended, shipped_packs, user_rules, with_packs
from penstock.preflight.packs.release_source import WheelSource
from penstock.preflight.packs.release_tables import ReleaseTables
from penstock.preflight.rules.history import History
from release_wheels import FLAGS, sglang_files, vllm_files, write_wheel

TODAY = date(2026, 11, 18)
NAMES = st.frozensets(st.text("abcdefghij-", min_size=1, max_size=12), max_size=12)
PACKS = st.builds(
    Pack,
    engine=st.sampled_from(("vllm", "sglang")),
    release=st.builds(Release, st.sampled_from(("0.33.0", "0.5.23", "0.40.0rc1", "1.0.0.post2"))),
    learned_on=st.just("2026-11-18"),
    source=st.text("abc-.", max_size=20),
    source_sha256=st.just(""),
    tables=st.builds(
        ReleaseTables,
        flags=NAMES.filter(bool),
        negations=st.frozensets(st.sampled_from(("no-", "inverse"))),
        variables=NAMES,
        choices=st.dictionaries(st.sampled_from(("kv-cache-dtype", "quantization")), NAMES),
        kinds=st.dictionaries(st.sampled_from(FLAGS), st.sampled_from(("switch", "whole"))),
        architectures=NAMES,
        defaults=st.dictionaries(st.sampled_from(("a", "b")), st.floats(0, 1)),
    ),
    rules=st.dictionaries(st.sampled_from(("one", "two")), st.sampled_from(("holds", "moved", "gone"))),
)
RULE = """\
[[rule]]
id = "mine-no-h100-for-llama"
severity = "blocker"
confidence = "issue"
when = "accelerator == 'h100_sxm' and model.architecture == 'LlamaForCausalLM'"
message = "We keep our H100 for other models."
fix = "Use MI300X."
sources = ["https://example.com/why"]
fires = { accelerator = "h100_sxm", "model.architecture" = "LlamaForCausalLM" }
quiet = { accelerator = "h200_sxm" }
"""


@given(PACKS)
def test_a_written_pack_is_read_unchanged(pack: Pack) -> None:
    assert read_pack(write_pack(pack).encode(), "pack.json") == pack


@settings(max_examples=300)
@given(PACKS, st.data())
def test_a_changed_pack_is_refused_in_one_line(pack: Pack, data: st.DataObject) -> None:
    written = bytearray(write_pack(pack).encode())
    at = data.draw(st.integers(0, len(written) - 1))
    written[at] = data.draw(st.integers(0, 255).filter(lambda byte: byte != written[at]))
    problem = ""
    try:
        assert read_pack(bytes(written), "pack.json") == pack  # a blank between two keys may be another blank
    except PenstockError as error:
        problem = str(error)
    assert "\n" not in problem
    assert problem.startswith("pack.json") or not problem


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.sampled_from((["0.1"], ["0.2"], ["0.1", "0.3"], ["0.4"]))),
    NAMES,
    st.sampled_from(("0.2", "0.25", "0.5")),
)
def test_a_learnt_release_has_exactly_its_names(
    entries: dict[str, list[str]], names: frozenset[str], text: str
) -> None:
    read = tuple(Release(one) for one in ("0.1", "0.2", "0.3", "0.4"))
    history, release = History(entries={"first": ["0.1"], **entries}, read=read), Release(text)
    learned = history.with_release(release, names)
    assert set(learned.names_in(release)) == names
    for other in read:
        if other != release:
            assert {name for name in entries if learned.has(name, other)} == {
                name for name in entries if history.has(name, other)
            }


def test_vllm_is_read_from_its_wheel(tmp_path: Path) -> None:
    tables = learn_wheel(write_wheel(tmp_path / "vllm-9.9.0-cp38-abi3-any.whl", vllm_files("brand-new")), TODAY).tables
    assert tables.flags == {*FLAGS, "brand-new", "host", "tool-call-parser"}
    assert tables.negations == {"no-"}
    assert tables.variables == {"VLLM_FAST"}
    assert tables.architectures == {"LlamaForCausalLM"}
    assert tables.choices == {
        "attention-backend": {"FLASH_ATTN", "MINE"},
        "kv-cache-dtype": {"auto", "fp8"},
        "tokenizer-mode": {"auto", "slow"},
        "tool-call-parser": {"hermes"},
    }
    assert tables.defaults == {"gpu_memory_utilization": 0.92}


def test_sglang_is_read_from_its_wheel(tmp_path: Path) -> None:
    tables = learn_wheel(write_wheel(tmp_path / "sglang-9.9.0-py3-none-any.whl", sglang_files()), TODAY).tables
    switches = {"strict-loading", "no-strict-loading"}
    assert tables.flags == {*FLAGS, *switches, "attention-backend", "tp-size", "tensor-parallel-size", "new-name"}
    assert tables.choices == {"attention-backend": {"triton", "aiter"}, "tool-call-parser": {"qwen"}}
    assert tables.kinds == {**dict.fromkeys(FLAGS, "whole"), "tp-size": "whole"}
    assert tables.variables == {"SGLANG_FAST"}
    assert tables.architectures == {"LlamaForCausalLM"}


def test_an_installed_package_is_read_like_its_wheel(tmp_path: Path) -> None:
    site = tmp_path / "lib" / "python3.12" / "site-packages"
    for name, text in vllm_files().items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text, encoding="utf-8")
    (site / "vllm-9.9.0.dist-info").mkdir()
    wheel = learn_wheel(write_wheel(tmp_path / "vllm-9.9.0-any.whl", vllm_files()), TODAY)
    for folder in (tmp_path, site, site / "vllm"):
        assert learn_folder(folder, TODAY).tables == wheel.tables
    (site / "vllm" / "envs.py").unlink()
    (site / "vllm" / "envs.py").symlink_to(write_wheel(tmp_path / "outside.py", {"a": "b"}))
    assert learn_folder(tmp_path, TODAY).tables.variables == frozenset()
    shutil.rmtree(site / "vllm")
    with pytest.raises(UsageError, match="neither vllm nor sglang is installed in"):
        learn_folder(tmp_path, TODAY)


def test_a_release_published_later_is_learnt_without_a_code_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_PACKS", str(tmp_path / "packs"))
    command = "vllm serve meta-llama/Llama-3.1-8B-Instruct --brand-new 1"
    before = preflight("llama-3.1-8b", "h100", engine_version="9.9.0", command=command).answers[0]
    assert before.newer_than_read is not None
    assert "--brand-new is no flag of any release that was read" in before.possible_obstacles[0].text
    answer = learn([str(write_wheel(tmp_path / "vllm-9.9.0-any.whl", vllm_files("brand-new", "served-model-name")))])
    assert "brand-new" in answer.learned[0].added
    after = preflight("llama-3.1-8b", "h100", engine_version="9.9.0", command=command).answers[0]
    assert after.newer_than_read is None
    assert not [flag for flag in after.flags if flag.name == "--brand-new"]
    gone = preflight("llama-3.1-8b", "h100", engine_version="9.9.0", command=f"{command} --enforce-eager").answers[0]
    assert [flag.message for flag in gone.flags] == ["--enforce-eager was removed in 9.9.0 and stops start-up"]
    assert "9.9.0" in list_packs().engines[0].packs


def test_shipped_packs_and_citations_are_in_order() -> None:
    packs, rules = shipped_packs(), {rule.id for rule in load_knowledge().rules}
    assert {f"{pack.engine} {pack.release}" for pack in packs} >= {"vllm 0.33.0", "sglang 0.5.23"}
    for pack in packs:
        assert pack.rules.keys() <= rules
        assert len(pack.tables.flags) > 300
    sources = {source.text for rule in load_knowledge().rules for source in rule.sources}
    assert shipped_marks().keys() <= sources


def test_a_pack_agrees_with_the_table_where_both_read_a_release() -> None:
    known, release = load_knowledge(), Release("0.33.0")
    pack = next(pack for pack in shipped_packs() if pack.engine == "vllm")
    assert set(known.flags["vllm"].flags.names_in(release)) == pack.tables.flags
    for flag, values in known.choices["vllm"].items():
        assert set(values.names_in(release)) == pack.tables.choices[flag]


@pytest.mark.parametrize(
    ("kept", "standing"), [("a = 1\nb = 2\nc = 3", "holds"), ("a = 1\nb = 2\nc = 4", "moved"), ("z = 0", "gone")]
)
def test_lines_are_compared_without_their_place(tmp_path: Path, kept: str, standing: str) -> None:
    rules = user_rules(
        RULE.replace('sources = ["https://example.com/why"]', 'sources = ["vllm@v0.32.0:vllm/envs.py#L1-L3"]')
        .replace('severity = "blocker"', 'severity = "blocker"\nengine = "vllm"')
        .replace("fires = {", 'fires = { engine = "vllm",'),
        "mine.toml",
    )
    wheel = write_wheel(tmp_path / "vllm-9.9.0-any.whl", {"vllm/envs.py": f"first = 1\n{kept}\nlast = 9\n"})
    marks = {"vllm@v0.32.0:vllm/envs.py#L1-L3": line_marks("    a = 1\n    b = 2\n\n    c = 3\n")}
    assert standings(rules, "vllm", Release("9.9.0"), WheelSource(wheel), marks) == {rules[0].id: standing}


def test_a_rule_of_ten_lines_changes_a_verdict(tmp_path: Path) -> None:
    assert len(RULE.splitlines()) == 10
    (tmp_path / "mine.toml").write_text(RULE, encoding="utf-8")
    assert preflight("llama-3.1-8b", "h100").answers[0].readiness is Readiness.RUNS
    refused = preflight("llama-3.1-8b", "h100", rules=tmp_path)
    assert not refused.good
    assert [finding.rule.id for finding in refused.answers[0].assessment.findings] == ["mine-no-h100-for-llama"]
    assert preflight("llama-3.1-8b", "mi300x", rules=tmp_path).good
    assert preflight("llama-3.1-8b", "h200", rules=tmp_path).good
    assert list_packs(rules=tmp_path).user_rules == ("mine-no-h100-for-llama",)


def test_a_rule_of_the_same_name_replaces_the_shipped_one(tmp_path: Path) -> None:
    shipped = load_knowledge().rules[0].id
    (tmp_path / "mine.toml").write_text(RULE.replace("mine-no-h100-for-llama", shipped), encoding="utf-8")
    rules = load_extended([tmp_path]).rules
    assert len(rules) == len(load_knowledge().rules)
    assert next(rule for rule in rules if rule.id == shipped).fix == "Use MI300X."


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("accelerator == 'h100_sxm'", "acelerator == 'h100_sxm'"), "mine.toml:2: .*no fact is called acelerator"),
        (
            ('fires = { accelerator = "h100_sxm"', 'fires = { accelerator = "mi300x"'),
            "mine.toml:1: .*does not apply in its",
        ),
        (
            ('quiet = { accelerator = "h200_sxm" }', 'quiet = { accelerator = "h100_sxm" }'),
            "mine.toml:1: .*still applies in its",
        ),
        (('severity = "blocker"', 'severity = "bad"'), "mine.toml:1: .*severity"),
        (('fix = "Use MI300X."', 'fixx = "Use MI300X."'), "mine.toml:1: "),
        (('sources = ["https://example.com/why"]', "sources = []"), "mine.toml:2: .*at least one source"),
        (("[[rule]]", "[[rule]"), "mine.toml.*line 1"),
        (("accelerator == 'h100_sxm'", "not " * 5000 + "(accelerator == 'h100_sxm')"), "mine.toml"),
        (("accelerator == 'h100_sxm'", "(" * 5000 + "accelerator == 'h100_sxm'" + ")" * 5000), "mine.toml"),
        (("accelerator == 'h100_sxm'", "__import__('os').system('true')"), "mine.toml:2: .*not allowed in a condition"),
    ],
)
def test_a_broken_rule_is_refused_with_its_line(tmp_path: Path, change: tuple[str, str], problem: str) -> None:
    (tmp_path / "mine.toml").write_text(RULE.replace(*change), encoding="utf-8")
    with pytest.raises(CatalogError, match=problem) as caught:
        preflight("llama-3.1-8b", "h100", rules=tmp_path)
    assert "\n" not in str(caught.value)


def test_a_directory_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be listed"):
        preflight("llama-3.1-8b", "h100", rules=tmp_path / "none")


@pytest.mark.parametrize(
    "word", ["vllm", "vllm==", "--help==1", "vllm==0.33.0; rm -rf /", "torch==2.0", "./none.whl", "vllm==-e"]
)
def test_what_is_no_release_is_refused_before_pip_runs(word: str) -> None:
    with pytest.raises(UsageError) as caught:
        learn([word])
    assert "\n" not in str(caught.value)


def test_newer_releases_are_taken_from_what_pip_prints() -> None:
    printed = {"vllm": "vllm (0.99.0)\nAvailable versions: 0.99.0, 0.99.0rc1, 0.33.0, 0.1.dev3+g1, strange!\n"}
    listed = list_packs(index=True, versions_of=lambda engine: printed.get(engine, "Available versions: 0.1.0\n"))
    assert [one.newer for one in listed.engines] == [("0.99.0", "0.99.0rc1"), ()]
    with pytest.raises(UsageError, match="pip did not list releases"):
        list_packs(index=True, versions_of=lambda _: "ERROR: no connection")


def test_packs_of_an_older_release_do_not_claim_the_releases_after_it() -> None:
    pack = next(pack for pack in shipped_packs() if pack.engine == "vllm")
    later = Pack(
        engine="vllm",
        release=Release("0.50.0"),
        learned_on="",
        source="",
        source_sha256="",
        tables=pack.tables,
        rules={},
    )
    knowledge = with_packs(load_knowledge(), [later])
    assert ("vllm", Release("0.50.0")) in knowledge.standings
    assert json.loads(write_pack(later))["release"] == "0.50.0"
    history = knowledge.flags["vllm"].flags
    assert history.around(Release("0.45.0")) == (Release("0.33.0"), Release("0.50.0"))
