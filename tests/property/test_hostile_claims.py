"""Whatever is written, it is read or refused in one line that names the place: claim files, sheets and sentences."""

import copy
import random
from dataclasses import replace
from functools import cache

import pytest
import yaml

from audits import library
from effort import fuzz_cases
from penstock.audit.judge_claims import judge
from penstock.audit.parsing.claims_file import EXAMPLE_CLAIMS, parse_claims, read_claims
from penstock.audit.parsing.sentence import parse_sentence
from penstock.audit.parsing.tender_sheet import parse_sheet
from penstock.audit.reference_library import Library
from penstock.errors import PenstockError, UsageError
from penstock.reading.yaml_tree import YamlTree

CASES = fuzz_cases(10_000, 100_000)
WORDS = (
    "",
    "0",
    "-1",
    "1e309",
    "nan",
    "999999999999999",
    "h100",
    "h1000",
    "8x h100",
    "0x h100",
    "99999x h100",
    "llama-3.1-70b",
    "llama",
    "fp8",
    "fp17",
    "1 tok/s",
    "~1-2 tok/s",
    "2-1 x",
    "5 parsecs",
    "$",
    "$1 /h",
    "%",
    "31%",
    "12k",
    "3,958 TFLOPS",
    "over under 3 x",
    "2024-02-30",
    "Q5 2024",
    "1/0",
    "a / b",
    "(((((1",
    "__import__('os')",
    "true",
    "é\u2028x",
    "\ud7ff",
    "=1+1",
    "x" * 500,
    "1" * 400,
    "memory",
    "sparse",
    "on",
    ":",
    "../../etc/passwd",
)
SHEET = """model,on,precision,engine,input,output,concurrency,tok/s,tpot_ms,ttft_ms,usd_per_hour,usd_per_mtok
llama-3.1-70b,1x mi300x,fp16,vllm,1024,1024,64,900,60,400,2.5,0.77
deepseek-r1,8x mi355x,fp8,sglang,8192,1024,64,3000,20,900,40,3.70
"""
SENTENCES = (
    "llama-3.1-70b fp16 on 1x h100: 2800 tok/s",
    "llama-3.1-405b fp8 on 2x mi300x: fits",
    "h100 fp8: 3958 TFLOPS sparse",
    "mi300x memory: 1.5x of h100",
    "deepseek-r1 fp8 on 8x mi355x with sglang in 8k/1k at 64 users without drafts: 20 ms",
)


def refused_well(message: str, where: str) -> None:
    assert "\n" not in message
    assert message.startswith(f"{where}:"), message
    assert len(message) < 900


@cache
def trees() -> tuple[yaml.Node, ...]:
    """The example and one claim of every other kind, each a file of its own."""
    whole = yaml.compose(EXAMPLE_CLAIMS + MORE, Loader=yaml.SafeLoader)
    heads, (key, claims) = whole.value[:-1], whole.value[-1]
    files = []
    for claim in claims.value:
        alone = yaml.SequenceNode(claims.tag, [claim], claims.start_mark, claims.end_mark)
        files.append(yaml.MappingNode(whole.tag, [*heads, (key, alone)], whole.start_mark, whole.end_mark))
    return tuple(files)


MORE = """\
  - id: saved
    saving: {title: t, cheaper: a, dearer: b, devices: 8, cheaper_usd: 1, dearer_usd: 2, discount: 0, cheaper_watts: 1,
      dearer_watts: 1, hardware_share: 0.6, years: 3, engineers: 1, engineer_usd_per_year: 1, claimed: 0.1,
      claimed_with_engineers: 0.1}
  - {id: when, date: {subject: mi325x, event: shipping, when: 2023-10}, contradicts: [other/there]}
  - {id: there, mention: {subject: mi325x}}
  - {id: sum, follows: {inputs: {a: 1, b: 2}, formula: a / b, figure: 0.5x}}
  - {id: so, fact: {subject: fnuz, about: stands for, says: finite}}
  - {id: price, price: {accelerator: h100, paid_for: rent, figure: $2.5 /h}}
  - {id: ratio, faster: {model: llama-3.1-8b, hardware: h100, over: h200, figure: 1.2x, input: 1k, output: 1k}}
  - {id: bytes, size: {model: llama-3.1-8b, of: cache, figure: 1 GB, context: 8k}}
  - {id: rule, limit: {accelerator: h20, rule: 3a090-2023, side: below}}
"""


def scalars(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [leaf for key, value in node.value for leaf in (*scalars(key), *scalars(value))]
    if isinstance(node, yaml.SequenceNode):
        return [node, *(leaf for value in node.value for leaf in scalars(value))]
    return [node]


def test_claim_files_are_read_or_refused_with_the_line_and_the_fix() -> None:
    """The file is parsed once and its nodes are changed: composing YAML is the slow part, and not ours."""
    chance, outcomes = random.Random(1), {"read": 0, "refused": 0}
    files = [(whole, scalars(whole)) for whole in trees()]
    assert all(read_claims(YamlTree(whole, "c.yaml", "file of claims")) for whole, _ in files)
    for _ in range(CASES // 2):
        whole, leaves = chance.choice(files)
        changed = [(leaf, leaf.value, leaf.tag) for leaf in chance.sample(leaves, chance.choice((1, 1, 1, 2)))]
        for leaf, _, _ in changed:
            leaf.value = mutated(leaf.value, chance) if isinstance(leaf, yaml.ScalarNode) else []
        try:
            read_claims(YamlTree(whole, "c.yaml", "file of claims"))
            outcomes["read"] += 1
        except UsageError as error:
            refused_well(str(error), "c.yaml")
            outcomes["refused"] += 1
        finally:
            for leaf, value, tag in changed:
                leaf.value, leaf.tag = value, tag
    assert outcomes["refused"] > CASES // 8
    assert outcomes["read"] > CASES // 50


def mutated(text: str, chance: random.Random) -> str:
    turn = chance.randrange(4)
    if turn == 0:
        return chance.choice(WORDS)
    if turn == 1 and text:
        at = chance.randrange(len(text))
        return text[:at] + chance.choice("0123456789.,-xX%$ /:~eE\u00e9") + text[at + chance.randrange(2) :]
    if turn == 2:
        return text * chance.choice((2, 30))
    return text[: chance.randrange(len(text) + 1)]


def test_text_that_is_hardly_yaml_is_refused_with_its_place() -> None:
    chance = random.Random(2)
    for _ in range(max(200, CASES // 500)):
        at, length = chance.randrange(len(EXAMPLE_CLAIMS)), chance.randrange(40)
        text = EXAMPLE_CLAIMS[:at] + chance.choice(WORDS).replace("\ud7ff", "") + EXAMPLE_CLAIMS[at + length :]
        try:
            parse_claims(text, "c.yaml")
        except UsageError as error:
            refused_well(str(error), "c.yaml")


def test_sheets_are_read_or_refused_with_the_line_and_the_fix() -> None:
    chance, refused = random.Random(3), 0
    rows = [line.split(",") for line in SHEET.splitlines()[:2]]
    assert len(parse_sheet(SHEET, "s.csv")) == 2 * 6
    for _ in range(2 * CASES // 5):
        cells = copy.deepcopy(rows)
        for _ in range(chance.choice((1, 1, 2))):
            row = chance.choice(cells)
            row[chance.randrange(len(row))] = mutated(chance.choice(row), chance)
        try:
            parse_sheet("\n".join(",".join(row) for row in cells), "s.csv")
        except UsageError as error:
            refused_well(str(error), "s.csv")
            refused += 1
    assert refused > CASES // 10


def test_sentences_are_read_or_refused_with_a_suggestion() -> None:
    chance, refused, read = random.Random(4), 0, 0
    for _ in range(CASES // 10):
        words = chance.choice(SENTENCES).split(" ")
        at = chance.randrange(len(words))
        words[at] = mutated(words[at], chance)
        try:
            parse_sentence(" ".join(words))
        except UsageError as error:
            refused += "\n" not in str(error)
        else:
            read += 1
    assert refused > CASES // 40
    assert refused + read == CASES // 10


@cache
def by_bounds() -> Library:
    return replace(library(), efficiencies=None, measurements_of=lambda _: ())


def test_whatever_was_read_is_judged() -> None:
    """No figure, however odd, ends the audit of a file."""
    chance, judged = random.Random(5), 0
    files = [(whole, [leaf for leaf in scalars(whole) if isinstance(leaf, yaml.ScalarNode)]) for whole in trees()]
    for _ in range(min(3000, CASES // 30)):
        whole, leaves = chance.choice(files)
        leaf = chance.choice(leaves)
        value = leaf.value
        leaf.value = mutated(value, chance)
        try:
            found = read_claims(YamlTree(whole, "c.yaml", "file of claims"))
        except UsageError:
            continue
        finally:
            leaf.value = value
        for claim in found:
            assert judge(claim, by_bounds()).reason
            judged += 1
    assert judged > CASES // 300


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("claims: []", "has no `version`"),
        ("version: 1\nclaims: []", "c.yaml:1: version: this penstock reads version 2"),
        ("version: 2\nclaims: []", "c.yaml:2: claims: the list is empty"),
        ("version: 2\nclaims:\n  - {spec: {accelerator: h1000, quantity: fp8, figure: 1 TFLOPS}}", "did you mean h100"),
        (
            "version: 2\nclaims:\n  - {spec: {accelerator: h100, quantity: fp8, figur: 1 TFLOPS}}",
            "did you mean `figure`?",
        ),
        (
            "version: 2\nclaims:\n  - {spec: {accelerator: h100, quantity: fp8, figure: 1 GB}}",
            "fp8 is measured in flops/s",
        ),
        ("version: 2\nclaims:\n  - {specs: {}}", "did you mean `spec`?"),
        ("version: 2\nclaims:\n  - {says: x}", "a claim must have exactly one of spec"),
        ("version: 2\nclaims:\n  - {mention: {subject: a}, contradicts: [b]}", "no claim has that id"),
        ("version: 2\nclaims:\n  - {key: a b c d e f g h i j k l m, mention: {subject: a}}", "at most 12"),
    ],
)
def test_mistakes_are_named_with_their_fix(text: str, complaint: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_claims(text, "c.yaml")
    assert complaint in str(raised.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "the sheet is empty"),
        ("model,tok/s\nllama-3.1-8b,1", "no column `on`"),
        ("model,on,throughputt\n", "did you mean `throughput`?"),
        ("model,on,tok/s\nllama-3.1-8b,h100,fast", "s.csv:2: tok/s: 'fast' is not an amount"),
        ("model,on,tok/s\nllama-3.1-9b,h100,5", "s.csv:2: model: no model named 'llama-3.1-9b'"),
        ("model,on,tok/s\nllama-3.1-8b,h100,1,000", "4 cells, but the heading has 3"),
        ("model,on,usd_per_mtok\nllama-3.1-8b,h100,1", "only with `usd_per_hour` and `tok/s`"),
        ("model,on,tok/s\nllama-3.1-8b,h100,", "no row has a figure to check"),
    ],
)
def test_mistakes_of_a_sheet_are_named_with_their_fix(text: str, complaint: str) -> None:
    with pytest.raises(PenstockError) as raised:
        parse_sheet(text, "s.csv")
    assert complaint in str(raised.value)
