"""Complete and truncated request bodies are parsed; invalid ones raise BadBody and nothing else."""

import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.gateway.picker.request_body import BadBody, read_body

CASES = int(os.environ.get("PENSTOCK_FUZZ_CASES", "2000"))


def body(**more: object) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": "hi"}], "model": "m", **more}).encode()


def test_model_limit_and_stream_are_parsed() -> None:
    asked = read_body(body(max_tokens=7, stream=True), 100)
    assert (asked.model, asked.limit_tokens, asked.stream) == ("m", 7, True)


def test_the_newer_name_of_the_limit_wins() -> None:
    assert read_body(body(max_tokens=7, max_completion_tokens=5), 1).limit_tokens == 5


def test_a_truncated_body_yields_its_complete_fields() -> None:
    text = b'{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"' + b"x" * 1000
    asked = read_body(text, 400_000, cut=True)
    assert (asked.model, asked.limit_tokens, asked.body_bytes) == ("m", 9, 400_000)
    assert text[asked.prefix_from :].startswith(b'"messages"')


def test_a_body_truncated_before_its_model_has_none() -> None:
    assert read_body(body()[:30], 400_000, cut=True).model is None


def test_a_truncated_body_with_a_huge_number_yields_earlier_fields() -> None:
    assert read_body(b'{"model":"m","max_tokens":' + b"9" * 5000, 400_000, cut=True).model == "m"
    assert read_body(b'{"model":"m","seed":' + b"9" * 5000 + b',"n":', 400_000, cut=True).model == "m"


@pytest.mark.parametrize("text", [b"", b"[" * 70_000, b"\xff" * 100, b'{"model": 1, "x', b'{"a" "b"', b'{7: "b"'])
def test_a_truncated_body_is_never_rejected(text: bytes) -> None:
    """What follows may be anything; the engine, which sees all of it, judges."""
    assert read_body(text, 400_000, cut=True).model is None


def test_an_empty_body_has_no_fields() -> None:
    """As `POST /v1/responses/ID/cancel`, which has none."""
    assert read_body(b"", 0).model is None


@pytest.mark.parametrize("cut", [False, True])
def test_the_model_of_a_form_is_parsed(cut: bool) -> None:  # noqa: FBT001 - a case
    file = b'--x\r\nContent-Disposition: form-data; name="file"\r\nContent-Type: audio/wav\r\n\r\n\0\xff\r\n'
    field = b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper\r\n'
    assert read_body(field + file + b"--x--\r\n", 400_000, cut=cut).model == "whisper"
    assert read_body(file + field + b"--x--\r\n", 400_000, cut=cut).model == "whisper"
    assert read_body(file, 400_000, cut=cut).model is None


def test_a_model_inside_a_message_is_not_the_model() -> None:
    text = json.dumps({"messages": [{"role": "user", "content": '","model":"other'}], "model": "m"}).encode()
    assert read_body(text, len(text)).model == "m"
    nested = json.dumps({"metadata": {"model": "other"}, "model": "m"}).encode()
    assert read_body(nested, len(nested)).model == "m"
    assert read_body(nested[:-2], 1000, cut=True).model != "other"


@pytest.mark.parametrize("text", [b"[]", b"1", b"{", b"{" * 100_000, b"[" * 100_000, b'{"model": 1}', b"\xff\xfe{}"])
def test_invalid_bodies_are_rejected(text: bytes) -> None:
    with pytest.raises(BadBody):
        read_body(text, len(text))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=CASES, deadline=None)
@given(
    st.dictionaries(st.sampled_from(["model", "messages", "prompt", "max_tokens", "stream", "n"]), JSON_VALUES),
    st.integers(0, 200),
    st.binary(max_size=8),
)
def test_hostile_bodies_are_parsed_or_rejected(fields: dict[str, object], cut_at: int, noise: bytes) -> None:
    text = json.dumps(fields).encode()
    for shown, cut in ((text, False), (text[:cut_at], True), (text[:cut_at] + noise + text[cut_at:], False)):
        try:
            asked = read_body(shown, len(text), cut=cut)
        except BadBody:
            continue
        assert asked.model is None or isinstance(asked.model, str)
        assert asked.limit_tokens is None or asked.limit_tokens > 0
        assert 0 <= asked.prefix_from <= len(shown)


@pytest.mark.parametrize(
    ("said", "choices"), [("4", 4), ("1", 1), ("0", 1), ("-3", 1), ("true", 1), ('"9"', 1), ("1e9", 1), ("1" * 30, 128)]
)
def test_the_number_of_choices_is_parsed(said: str, choices: int) -> None:
    body = f'{{"model": "m", "n": {said}, "prompt": "x"}}'.encode()
    assert read_body(body, len(body)).choices == choices
