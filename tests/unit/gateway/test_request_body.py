"""Request bodies are parsed; invalid ones raise BadBody and nothing else."""

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
    asked = read_body(body(max_tokens=7, stream=True))
    assert (asked.model, asked.limit_tokens, asked.stream) == ("m", 7, True)


def test_the_newer_name_of_the_limit_wins() -> None:
    assert read_body(body(max_tokens=7, max_completion_tokens=5)).limit_tokens == 5


def test_an_empty_body_has_no_fields() -> None:
    """As `POST /v1/responses/ID/cancel`, which has none."""
    assert read_body(b"").model is None


def test_the_model_of_a_form_is_parsed() -> None:
    file = b'--x\r\nContent-Disposition: form-data; name="file"\r\nContent-Type: audio/wav\r\n\r\n\0\xff\r\n'
    field = b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper\r\n'
    assert read_body(field + file + b"--x--\r\n").model == "whisper"
    assert read_body(file + field + b"--x--\r\n").model == "whisper"
    assert read_body(file).model is None


def test_a_model_inside_a_message_is_not_the_model() -> None:
    text = json.dumps({"messages": [{"role": "user", "content": '","model":"other'}], "model": "m"}).encode()
    assert read_body(text).model == "m"
    nested = json.dumps({"metadata": {"model": "other"}, "model": "m"}).encode()
    assert read_body(nested).model == "m"


@pytest.mark.parametrize("text", [b"[]", b"1", b"{", b"{" * 100_000, b"[" * 100_000, b'{"model": 1}', b"\xff\xfe{}"])
def test_invalid_bodies_are_rejected(text: bytes) -> None:
    with pytest.raises(BadBody):
        read_body(text)


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
    for shown in (text, text[:cut_at], text[:cut_at] + noise + text[cut_at:]):
        try:
            asked = read_body(shown)
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
    assert read_body(body).choices == choices
