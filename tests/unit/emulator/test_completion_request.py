"""Completion requests are parsed as in vLLM; options that are not emulated are rejected."""

import json

import pytest

from penstock.emulator.completion_request import CompletionRequest, read_completion
from penstock.emulator.fake_text import chars_after, first_stop, text_between
from penstock.errors import UsageError

CHAT = {"messages": [{"role": "user", "content": "hello"}]}
TEXT = {"prompt": "hello"}


def read(body: dict[str, object], *, chat: bool = True) -> CompletionRequest:
    path = b"/v1/chat/completions" if chat else b"/v1/completions"
    return read_completion(path, json.dumps(body).encode())


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"temperature": -5}, "temperature must be in [0, 2], got -5"),
        ({"temperature": 2.5}, "temperature must be in [0, 2]"),
        ({"temperature": float("nan")}, "temperature must be in [0, 2]"),
        ({"temperature": "hot"}, "temperature must be in [0, 2]"),
        ({"top_p": 0}, "top_p must be in (0, 1], got 0"),
        ({"top_p": 1.5}, "top_p must be in (0, 1]"),
        ({"top_k": -2}, "top_k must be 0 (disable), or at least 1"),
        ({"presence_penalty": 3}, "presence_penalty must be in [-2, 2]"),
        ({"n": 0}, "n must be at least 1, got 0"),
        ({"n": 20000}, "n must be at most 16384, got 20000"),
        ({"min_tokens": 5, "max_tokens": 4}, "min_tokens must be less than or equal to max_tokens=4, got 5"),
        ({"stop": ""}, "stop cannot contain an empty string"),
        ({"stop": [1]}, "stop must be a string or a list of strings"),
        ({"stream": "yes"}, "stream must be true or false"),
        ({"stream_options": {"include_usage": True}}, "Stream options can only be defined when `stream=True`"),
        ({"model": 5}, "model must be a string"),
    ],
)
def test_invalid_values_are_rejected_with_vllms_messages(more: dict[str, object], said: str) -> None:
    for chat, base in ((True, CHAT), (False, TEXT)):
        with pytest.raises(UsageError) as refused:
            read({**base, **more}, chat=chat)
        assert said in str(refused.value)


@pytest.mark.parametrize(
    ("name", "asking", "idle"),
    [
        ("echo", True, False),
        ("logprobs", 5, None),
        ("top_logprobs", 2, 0),
        ("prompt_logprobs", 0, None),
        ("best_of", 3, 1),
        ("use_beam_search", True, False),
        ("suffix", "end", None),
        ("stop_token_ids", [7], []),
        ("bad_words", ["no"], []),
        ("response_format", {"type": "json_object"}, {"type": "text"}),
        ("tool_choice", "required", "auto"),
        ("priority", 1, 0),
    ],
)
def test_options_that_are_not_emulated_are_rejected(name: str, asking: object, idle: object) -> None:
    with pytest.raises(UsageError, match=f"{name} is not emulated"):
        read({**TEXT, name: asking}, chat=False)
    assert read({**TEXT, name: idle}, chat=False).prompts


def test_logprobs_is_a_number_for_text_and_a_flag_for_chat() -> None:
    assert read({**CHAT, "logprobs": False}).prompts
    with pytest.raises(UsageError, match="logprobs is not emulated"):
        read({**CHAT, "logprobs": True})
    with pytest.raises(UsageError, match="logprobs is not emulated"):
        read({**TEXT, "logprobs": 0}, chat=False)


def test_unknown_fields_and_sampling_options_are_accepted() -> None:
    more = {"temperature": 0.7, "top_p": 1, "top_k": 10**400, "seed": 3, "user": "me", "of_another_engine": {"x": 1}}
    assert read({**CHAT, **more}).choices_per_prompt == 1


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [("a" * 9, [3]), (["a" * 9, "b"], [3, 1]), ([1, 2, 3], [3]), ([[1, 2], [3]], [2, 1])],
)
def test_a_prompt_is_a_text_or_tokens_or_a_list_of_either(prompt: object, tokens: list[int]) -> None:
    asked = read({"prompt": prompt, "n": 2}, chat=False)
    assert [one.tokens for one in asked.prompts] == tokens
    assert asked.input_tokens == sum(tokens)
    assert [asked.prompt_of(choice) for choice in range(2 * len(tokens))] == [
        prompt for prompt in asked.prompts for _ in range(2)
    ]


@pytest.mark.parametrize("prompt", [[], "", None, ["a", 1], [1, "a"], ["a", ""], [[]], [["a"]], 5, ["a"] * 1025])
def test_other_prompts_are_rejected(prompt: object) -> None:
    with pytest.raises(UsageError, match="prompt"):
        read({"prompt": prompt}, chat=False)


@pytest.mark.parametrize(
    ("stops", "least", "included", "tokens", "seen"),
    [
        (["pen"], 0, False, 1, " "),
        (["pen"], 0, True, 1, " pen"),
        (["k p"], 0, False, 2, " penstoc"),
        (["pen"], 2, False, 3, " penstock penstock "),
        ([" penstock" * 3], 0, False, 3, ""),
        (["k p", "stock"], 0, False, 1, " pen"),
    ],
)
def test_a_stop_text_ends_an_answer_where_it_is_complete(
    stops: list[str],
    least: int,
    included: bool,  # noqa: FBT001 - a row of the table
    tokens: int,
    seen: str,
) -> None:
    stop = first_stop(stops, min_tokens=least, included=included)
    assert stop is not None
    assert stop.tokens == tokens
    assert text_between(0, stop.sent_chars) == seen


def test_a_stop_text_that_does_not_occur_has_no_effect() -> None:
    assert first_stop(["END", "penpen"], min_tokens=0, included=False) is None


@pytest.mark.parametrize("stops", [["ck pe"], ["pen", "never comes here"], ["k"], [" penstock penstock p"]])
def test_a_stream_holds_back_a_possible_stop_text(stops: list[str]) -> None:
    held = max(map(len, stops)) - 1
    stop = first_stop(stops, min_tokens=0, included=False)
    assert stop is not None
    places = [chars_after(count, stop, held_chars=held, last=count == stop.tokens) for count in range(stop.tokens + 1)]
    assert places == sorted(places)
    assert places[-1] == stop.sent_chars
