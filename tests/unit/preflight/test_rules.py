"""Every shipped rule: it fires where it should, keeps quiet on a near miss, and says who says so."""

import json
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import penstock
from labelled_world import GUIDE, rule_counts
from penstock.errors import CatalogError
from penstock.preflight import Facts, Rule, Unknown, assess, load_rules
from penstock.preflight.rules._rule_files import load_table, parse_rules
from penstock.preflight.rules.rule import Reference

RULES = load_rules()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_fires_on_its_case_and_keeps_quiet_on_its_near_miss(rule: Rule) -> None:
    fires: Facts = dict(rule.fires)
    assert rule.holds(fires) is True
    assert rule.quiet, "a near miss changes something"
    assert rule.holds({**fires, **rule.quiet}) is False


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_is_undetermined_without_any_one_fact_that_decides_it(rule: Rule) -> None:
    """Dropping a fact never turns a rule that fires into one that does not apply."""
    for name in rule.fires:
        assert rule.holds({**rule.fires, name: Unknown("dropped")}) is not False


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_says_what_happens_what_to_do_and_who_says_so(rule: Rule) -> None:
    assert rule.message.endswith((".", ")", "'"))
    assert rule.fix
    urls = [urlsplit(str(source.url)) for source in rule.sources]
    assert urls
    assert all(url.scheme == "https" and url.netloc and url.path for url in urls)


def test_counts_by_severity_and_grounds_are_those_in_the_note() -> None:
    assert rule_counts() in GUIDE.read_text(encoding="utf-8")


def test_an_undetermined_rule_is_returned_with_what_would_settle_it() -> None:
    facts: Facts = {**RULES[0].fires, next(iter(RULES[0].fires)): Unknown("ask the catalog")}
    answer = assess(RULES[:1], facts)
    assert answer.findings == ()
    assert list(answer.undetermined[0].missing.values()) == ["ask the catalog"]


RULE = """
[[rule]]
id = "x"
severity = "info"
confidence = "source"
when = "platform == 'rocm'"
message = "m."
fix = "f"
sources = ["vllm#1"]
fires = { platform = "rocm" }
quiet = { platform = "cuda" }
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('severity = "info"', 'severity = "bad"'),
        ('sources = ["vllm#1"]', "sources = []"),
        ('sources = ["vllm#1"]', 'sources = ["somebody said"]'),
        ("platform == 'rocm'", "plattform == 'rocm'"),
        ('fires = { platform = "rocm" }', "fires = { platform = 3 }"),
        ('fires = { platform = "rocm" }', 'fires = { nobody = "rocm" }'),
        ('fix = "f"', 'fix = "f"\nextra = 1'),
        ('fix = "f"', 'fix = "f"\nversions = "<0.2"'),
        ('fix = "f"', 'fix = "f"\nengine = "vllm"\nversions = "soon"'),
    ],
)
def test_a_malformed_rule_is_refused_by_name(old: str, new: str) -> None:
    assert len(parse_rules(RULE, "test")) == 1
    with pytest.raises(CatalogError, match=r"test\.toml|source"):
        parse_rules(RULE.replace(old, new), "test")


def test_sources_resolve_to_pages() -> None:
    assert Reference("vllm#45681").url == "https://github.com/vllm-project/vllm/issues/45681"
    file = Reference("sglang@v0.5.18:python/sglang/srt/server_args.py#L1-L2").url
    assert file == "https://github.com/sgl-project/sglang/blob/v0.5.18/python/sglang/srt/server_args.py#L1-L2"


def test_the_shipped_tables_equal_their_toml_files() -> None:
    """A TOML file was edited: run `make tables`."""
    folder = Path(penstock.__file__).parent / "preflight" / "data"
    edited = {
        path.relative_to(folder).with_suffix("").as_posix(): tomllib.loads(path.read_text(encoding="utf-8"))
        for path in folder.rglob("*.toml")
    }
    assert json.loads((folder / "tables.json").read_text(encoding="utf-8")) == edited
    assert all(load_table(name) == table for name, table in edited.items())
