"""What was asked and what is answered? OpenAI's chat and text completions as an engine without a tokenizer has them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from penstock.errors import UsageError

BYTES_PER_TOKEN: Final = 4
"""Of English text, by OpenAI's own rule of thumb; the emulator has no tokenizer and counts bytes."""
_MESSAGE_TOKENS: Final = 4
"""What a chat template adds to a message."""
_WORD: Final = " penstock"
_DEFAULT_LIMIT: Final = 16
"""Of text completions, where nothing is said; chat goes on to the end of the context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionAsked:
    """One request for a completion."""

    model: str
    prompt: bytes
    input_tokens: int
    limit_tokens: int | None
    ignore_eos: bool
    stream: bool
    usage_in_stream: bool
    chat: bool

    def keys(self, block_tokens: int) -> list[int]:
        """Name the full blocks of its prompt, each with all that is before it."""
        size, keys, chain = block_tokens * BYTES_PER_TOKEN, [], blake2b(digest_size=8)
        for end in range(size, min(len(self.prompt), self.input_tokens * BYTES_PER_TOKEN) + 1, size):
            chain.update(self.prompt[end - size : end])
            keys.append(int.from_bytes(chain.digest(), "big"))
        return keys


def read_completion(path: bytes, body: bytes) -> CompletionAsked:
    """Read a request; what cannot be meant is refused as vLLM does, with 400."""
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        raise UsageError("the body is not JSON") from None
    if not isinstance(asked, dict):
        raise UsageError("the body is not a JSON object")
    chat = path.startswith(b"/v1/chat/")
    prompt, tokens = _chat_prompt(asked.get("messages")) if chat else _text_prompt(asked.get("prompt"))
    limit = _limit(asked)
    if limit is None and not chat:
        limit = _DEFAULT_LIMIT
    options = asked.get("stream_options")
    return CompletionAsked(
        model=str(asked.get("model", "")),
        prompt=prompt,
        input_tokens=max(1, tokens),
        limit_tokens=limit,
        ignore_eos=asked.get("ignore_eos") is True,
        stream=asked.get("stream") is True,
        usage_in_stream=isinstance(options, dict) and options.get("include_usage") is True,
        chat=chat,
    )


def _limit(asked: Mapping[str, object]) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        value = asked.get(name)
        if value is not None:
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise UsageError(f"{name} must be at least 1")
            return value
    return None


def _chat_prompt(messages: object) -> tuple[bytes, int]:
    if not isinstance(messages, list) or not messages:
        raise UsageError("messages must be a list of at least one message")
    parts = []
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise UsageError("a message is an object with a role")
        content = message.get("content")
        text = content if isinstance(content, str) else json.dumps(content)
        parts.append(f"{message['role']}\n{text}\n".encode("utf-8", "surrogatepass"))
    prompt = b"".join(parts)
    return prompt, -(-len(prompt) // BYTES_PER_TOKEN) + _MESSAGE_TOKENS * len(parts)


def _text_prompt(prompt: object) -> tuple[bytes, int]:
    if isinstance(prompt, str) and prompt:
        text = prompt.encode("utf-8", "surrogatepass")
        return text, -(-len(text) // BYTES_PER_TOKEN)
    if isinstance(prompt, list) and prompt and all(isinstance(token, int) and 0 <= token < 2**31 for token in prompt):
        return b"".join(token.to_bytes(BYTES_PER_TOKEN, "little") for token in prompt), len(prompt)
    raise UsageError("prompt must be a text or a list of token ids")


def error_body(message: str, kind: str, code: int) -> bytes:
    """Write an error as OpenAI's clients read it."""
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}}).encode()


def models_body(model: str, adapters: Sequence[str], max_tokens: int) -> bytes:
    """List the one model that is served, and its adapters as vLLM does."""
    card = {"object": "model", "created": 0, "owned_by": "penstock"}
    own = {"id": model, **card, "root": model, "max_model_len": max_tokens}
    more = [{"id": name, **card, "root": name, "parent": model, "max_model_len": None} for name in adapters]
    return json.dumps({"object": "list", "data": [own, *more]}).encode()


class CompletionAnswer:
    """The pieces of one answer."""

    def __init__(self, asked: CompletionAsked, number: int, created: int) -> None:
        self._asked = asked
        prefix, kind = ("chatcmpl", "chat.completion") if asked.chat else ("cmpl", "text_completion")
        self._head = {
            "id": f"{prefix}-{number:x}",
            "object": f"{kind}.chunk" if asked.stream and asked.chat else kind,
            "created": created,
            "model": asked.model,
        }
        self._piece = self._chunk(_WORD, None)
        self._first = True

    def tokens(self, count: int) -> bytes:
        """Write so many tokens, one event for each as a stream has them."""
        if self._first and self._asked.chat:
            self._first = False
            role = {"role": "assistant", "content": ""}
            opening = {**self._head, "choices": [{"index": 0, "delta": role, "finish_reason": None}]}
            return b"data: " + json.dumps(opening).encode() + b"\n\n" + self._piece * count
        return self._piece * count

    def closing(self, generated: int, reason: str) -> bytes:
        """Write the end of a stream."""
        text = self._chunk("", reason)
        if self._asked.usage_in_stream:
            last = {**self._head, "choices": [], "usage": self._usage(generated)}
            text += b"data: " + json.dumps(last).encode() + b"\n\n"
        return text + b"data: [DONE]\n\n"

    def whole(self, generated: int, reason: str) -> bytes:
        """Write an answer that is not streamed."""
        text = _WORD * generated
        said = {"message": {"role": "assistant", "content": text}} if self._asked.chat else {"text": text}
        choice = {"index": 0, **said, "logprobs": None, "finish_reason": reason}
        return json.dumps({**self._head, "choices": [choice], "usage": self._usage(generated)}).encode()

    def _chunk(self, text: str, reason: str | None) -> bytes:
        said = {"delta": {"content": text} if text else {}} if self._asked.chat else {"text": text}
        choice = {"index": 0, **said, "logprobs": None, "finish_reason": reason}
        return b"data: " + json.dumps({**self._head, "choices": [choice]}).encode() + b"\n\n"

    def _usage(self, generated: int) -> dict[str, int]:
        prompt = self._asked.input_tokens
        return {"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated}
