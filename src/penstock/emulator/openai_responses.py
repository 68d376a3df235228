"""Writes OpenAI's chat and text completion responses as vLLM does."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.emulator.completion_request import CompletionRequest
from penstock.emulator.fake_text import shown_chars, text_between


def error_body(message: str, kind: str, code: int) -> bytes:
    """Return an OpenAI error body."""
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}}).encode()


def models_body(model: str, adapters: Sequence[str], max_tokens: int) -> bytes:
    """Return the model list: the served model and its adapters, as vLLM lists them."""
    card = {"object": "model", "created": 0, "owned_by": "penstock"}
    own = {"id": model, **card, "root": model, "max_model_len": max_tokens}
    more = [{"id": name, **card, "root": name, "parent": model, "max_model_len": None} for name in adapters]
    return json.dumps({"object": "list", "data": [own, *more]}).encode()


@dataclass(frozen=True, slots=True)
class Ending:
    """Length and finish reason of one choice."""

    tokens: int
    reason: str
    stop: str | None = None
    """Stop string that ended it."""


class CompletionAnswer:
    """Writer of one response with one or more choices."""

    def __init__(self, asked: CompletionRequest, model: str, number: int, created: int) -> None:
        self._asked = asked
        prefix, kind = ("chatcmpl", "chat.completion") if asked.chat else ("cmpl", "text_completion")
        self._head = {
            "id": f"{prefix}-{number:x}",
            "object": f"{kind}.chunk" if asked.stream and asked.chat else kind,
            "created": created,
            "model": model,
        }
        self._alike = not asked.held_chars and asked.stop is None and not asked.usage_in_every_event
        self._pieces: dict[int, bytes] = {}
        """Token event by choice, cached if all events of a choice are equal."""

    def opening(self) -> bytes:
        """Return the first events of a chat stream: the role, for every choice."""
        if not self._asked.chat:
            return b""
        role = {"delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        count = len(self._asked.prompts) * self._asked.choices_per_prompt
        return b"".join(self._event(choice, role, 0) for choice in range(count))

    def token(self, choice: int, number: int, *, last: bool) -> bytes:
        """Return the event of a choice's next token, the `number`th."""
        if self._alike:
            if choice not in self._pieces:
                self._pieces[choice] = self._text(choice, 1, last=False)
            return self._pieces[choice]
        return self._text(choice, number, last=last)

    def _text(self, choice: int, number: int, *, last: bool) -> bytes:
        asked = self._asked
        before = shown_chars(number - 1, asked.stop, held_chars=asked.held_chars, last=False)
        now = shown_chars(number, asked.stop, held_chars=asked.held_chars, last=last)
        text = text_between(before, now)
        said = {"delta": {"content": text}} if asked.chat else {"text": text}
        return self._event(choice, {**said, "logprobs": None, "finish_reason": None}, number)

    def end(self, choice: int, ending: Ending) -> bytes:
        """Return the last event of a choice."""
        said: dict[str, object] = {"delta": {}} if self._asked.chat else {"text": ""}
        return self._event(choice, {**said, "logprobs": None, **_ended(ending)}, ending.tokens)

    def closing(self, endings: Sequence[Ending]) -> bytes:
        """Return the end of a stream."""
        text = b""
        if self._asked.usage_in_stream:
            usage = _usage(self._asked.input_tokens, sum(one.tokens for one in endings))
            text = _line({**self._head, "choices": [], "usage": usage})
        return text + b"data: [DONE]\n\n"

    def whole(self, endings: Sequence[Ending]) -> bytes:
        """Return a response that is not streamed."""
        asked, choices = self._asked, list[dict[str, object]]()
        for choice, ending in enumerate(endings):
            text = text_between(0, shown_chars(ending.tokens, asked.stop, held_chars=0, last=True))
            said = {"message": {"role": "assistant", "content": text}} if asked.chat else {"text": text}
            choices.append({"index": choice, **said, "logprobs": None, **_ended(ending)})
        usage = _usage(asked.input_tokens, sum(one.tokens for one in endings))
        return json.dumps({**self._head, "choices": choices, "usage": usage}).encode()

    def _event(self, choice: int, said: Mapping[str, object], tokens: int) -> bytes:
        event: dict[str, object] = {**self._head, "choices": [{"index": choice, **said}]}
        if self._asked.usage_in_every_event:
            event["usage"] = _usage(self._asked.prompt_of(choice).tokens, tokens)
        return _line(event)


def _ended(ending: Ending) -> dict[str, object]:
    return {"finish_reason": ending.reason, "stop_reason": ending.stop}


def _line(event: dict[str, object]) -> bytes:
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def _usage(prompt: int, generated: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated}
