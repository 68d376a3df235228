"""Writes responses to chat and text completion requests in OpenAI's format, as vLLM does."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.emulator.completion_request import CompletionRequest
from penstock.emulator.fake_text import chars_after, text_between


def models_body(model: str, adapters: Sequence[str], max_tokens: int, checkpoint: str | None = None) -> bytes:
    """Return the body of /v1/models. The body lists the served model and its adapters, as in vLLM."""
    card = {"object": "model", "created": 0, "owned_by": "penstock"}
    base = {"id": model, **card, "root": checkpoint or model, "max_model_len": max_tokens}
    more = [{"id": name, **card, "root": name, "parent": model, "max_model_len": None} for name in adapters]
    return json.dumps({"object": "list", "data": [base, *more]}).encode()


@dataclass(frozen=True, slots=True)
class Ending:
    """Length and finish reason of one choice."""

    tokens: int
    reason: str
    stop: str | None = None
    """Stop string that ended the choice, or None if the choice ended for another reason."""
    cached_tokens: int = 0
    """Prompt tokens that were found in the prefix cache."""


class CompletionAnswer:
    """Writer of one response with one or more choices."""

    def __init__(
        self,
        request: CompletionRequest,
        model: str,
        number: int,
        created: int,
        *,
        own_end: bool = False,
        other_text: bool = False,
    ) -> None:
        self._request = request
        self._other_text = other_text
        self._own_end = own_end and request.chat
        """Whether the finish reason has an event of its own, as in SGLang's chats. vLLM adds it to the last token."""
        prefix, kind = ("chatcmpl", "chat.completion") if request.chat else ("cmpl", "text_completion")
        self._head = {
            "id": f"{prefix}-{number:x}",
            "object": f"{kind}.chunk" if request.stream and request.chat else kind,
            "created": created,
            "model": model,
        }
        self._events_equal = not request.held_chars and request.stop is None and not request.usage_in_every_event
        self._pieces: dict[int, bytes] = {}
        """Token event of each choice.

        An event is stored only if all token events of its choice are equal, so that it can be sent again.
        """

    def opening(self) -> bytes:
        """Return the first events of a chat stream, one per choice with the role. For a text stream, return nothing."""
        if not self._request.chat:
            return b""
        role = {"delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        count = len(self._request.prompts) * self._request.choices_per_prompt
        return b"".join(self._event(choice, role, 0) for choice in range(count))

    def token(self, choice: int, number: int, ending: Ending | None = None) -> bytes:
        """Return the stream event of token `number` of a choice. `ending` is given for the last token of the choice."""
        shown = None if self._own_end else ending
        if self._events_equal and shown is None:
            if choice not in self._pieces:
                self._pieces[choice] = self._token_event(choice, 1, None, last=False)
            return self._pieces[choice]
        return self._token_event(choice, number, shown, last=ending is not None)

    def _token_event(self, choice: int, number: int, ending: Ending | None, *, last: bool) -> bytes:
        request = self._request
        before = chars_after(number - 1, request.stop, held_chars=request.held_chars, last=False)
        now = chars_after(number, request.stop, held_chars=request.held_chars, last=last)
        text = text_between(before, now, other=self._other_text)
        content = {"delta": {"content": text}} if request.chat else {"text": text}
        finish = {"finish_reason": None} if ending is None else _finish_fields(ending)
        return self._event(choice, {**content, "logprobs": None, **finish}, number)

    def end(self, choice: int, ending: Ending) -> bytes:
        """Return the event with the finish reason of a choice; nothing if the last token's event has it."""
        return self.cut(choice, ending) if self._own_end else b""

    def cut(self, choice: int, ending: Ending) -> bytes:
        """Return an event with the finish reason alone, for a choice that is cut off."""
        content: dict[str, object] = {"delta": {}} if self._request.chat else {"text": ""}
        return self._event(choice, {**content, "logprobs": None, **_finish_fields(ending)}, ending.tokens)

    def closing(self, endings: Sequence[Ending]) -> bytes:
        """Return the last events of a stream: the usage, if the client asked for usage, and `[DONE]`."""
        text = b""
        if self._request.usage_in_stream:
            usage = _usage(self._request.input_tokens, endings)
            text = _line({**self._head, "choices": [], "usage": usage})
        return text + b"data: [DONE]\n\n"

    def whole(self, endings: Sequence[Ending]) -> bytes:
        """Return the body of a response that is not streamed."""
        request, choices = self._request, list[dict[str, object]]()
        for choice, ending in enumerate(endings):
            chars = chars_after(ending.tokens, request.stop, held_chars=0, last=True)
            text = text_between(0, chars, other=self._other_text)
            content = {"message": {"role": "assistant", "content": text}} if request.chat else {"text": text}
            choices.append({"index": choice, **content, "logprobs": None, **_finish_fields(ending)})
        usage = _usage(request.input_tokens, endings)
        return json.dumps({**self._head, "choices": choices, "usage": usage}).encode()

    def _event(self, choice: int, content: Mapping[str, object], tokens: int) -> bytes:
        event: dict[str, object] = {**self._head, "choices": [{"index": choice, **content}]}
        if self._request.usage_in_every_event:
            event["usage"] = _counts(self._request.prompt_of(choice).tokens, tokens)
        return _line(event)


def _finish_fields(ending: Ending) -> dict[str, object]:
    return {"finish_reason": ending.reason, "stop_reason": ending.stop}


def _line(event: dict[str, object]) -> bytes:
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def _usage(prompt: int, endings: Sequence[Ending]) -> dict[str, object]:
    """Return the usage of a complete response, with the prompt tokens that were cached."""
    cached = sum(one.cached_tokens for one in endings)
    details = {"prompt_tokens_details": {"cached_tokens": cached}}
    return {**_counts(prompt, sum(one.tokens for one in endings)), **details}


def _counts(prompt: int, generated: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated}
