"""Tools for agents: typed arguments, published documents, and one-line errors for everything else."""

import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from penstock.api.agent_tools import TOOLS
from penstock.errors import PenstockError, UsageError

NAMES = {"fit", "predict", "simulate", "plan", "preflight", "audit", "catalog"}
CALLS: dict[str, dict[str, object]] = {
    "fit": {"model": "llama-3.1-8b", "on": "h100,mi300x"},
    "predict": {"model": "llama-3.1-8b", "on": "h100", "concurrency": "1,8"},
    "preflight": {"model": "gpt-oss-120b", "on": "mi300x"},
    "audit": {"claim": "llama-3.1-70b fp16 on 1x h100: 2800 tok/s"},
    "catalog": {"what": "diff", "names": "mi300x, h100"},
}
WITH_TRACE = """
workloads: [{name: chat, model: llama-3.1-8b, slo: "ttft=1s,tpot=50ms", requests_per_s: 1, trace: /etc/passwd}]
accelerators: [h100]
"""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


def test_every_question_is_a_tool_with_schemas_that_are_schemas() -> None:
    assert set(TOOLS) == NAMES
    for tool in TOOLS.values():
        for schema in (tool.input_schema(), tool.output_schema()):
            Draft202012Validator.check_schema(schema)
            assert schema["type"] == "object"
        assert tool.documents


@pytest.mark.parametrize("name", CALLS)
def test_an_answer_is_as_its_schema_says(name: str) -> None:
    tool = TOOLS[name]
    Draft202012Validator(tool.input_schema()).validate(CALLS[name])
    document = json.loads(json.dumps(tool.answer(CALLS[name])))
    Draft202012Validator(tool.output_schema()).validate(document)
    assert document["schema"] in tool.documents


@pytest.mark.parametrize(
    ("name", "arguments", "complaint"),
    [
        ("fit", {"model": "llama-3.1-8b"}, "fit needs on"),
        ("fit", {"model": "llama-3.1-8b", "on": "h100", "colour": "red"}, "fit has no argument colour"),
        ("fit", {"model": ["llama"], "on": "h100"}, "model must be of type string, not list"),
        ("fit", {"model": "llama-3.1-8b", "on": "h100", "tp": True}, "tp must be of type integer, not bool"),
        ("fit", {"model": "llama-3.1-8b", "on": "h100", "tp": "2"}, "tp must be of type integer, not str"),
        ("simulate", {"model": "llama-3.1-8b", "on": "h100", "rate": 1, "requests": 10**9}, "at most 100000"),
        ("simulate", {"model": "llama-3.1-8b", "on": "h100", "trace": "/etc/passwd"}, "no argument trace"),
        ("simulate", {"model": "llama-3.1-8b", "on": "h100", "rate": 1e-300}, "rate must be at least 1e-06"),
        ("plan", {"text": "x" * 200_000}, "at most 100,000 are read"),
        ("plan", {"text": WITH_TRACE}, "write `lengths:` instead of `trace:`"),
    ],
)
def test_a_wrong_argument_is_one_line(name: str, arguments: dict[str, object], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint) as raised:
        TOOLS[name].answer(arguments)
    assert "\n" not in str(raised.value)


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(["fit", "catalog", "audit", "plan"]),
    value=JSON,
    key=st.sampled_from(["model", "on", "what", "claim", "text", "names", "tp"]),
)
def test_hostile_arguments_are_expected_failures(name: str, value: object, key: str) -> None:
    tool = TOOLS[name]
    required = {each: "x" for each, argument in tool.arguments.items() if argument.required}
    with suppress(PenstockError):
        tool.answer({**required, key: value})
