"""Parses chat and text completion requests as vLLM does, and rejects options that are not emulated."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from penstock.emulator.fake_text import StopText, first_stop
from penstock.errors import UsageError

BYTES_PER_TOKEN: Final = 4
"""Bytes per token of English text, by OpenAI's rule of thumb. The emulator has no tokenizer, so it counts bytes."""
_MESSAGE_TOKENS: Final = 4
"""Tokens that a chat template adds per message."""
_DEFAULT_LIMIT: Final = 16
"""Default output limit of text completions, in tokens. Chat completions are limited only by the context length."""
_MAX_CHOICES: Final = 16384
"""vLLM's limit for `n` (VLLM_MAX_N_SEQUENCES)."""
_MAX_PROMPTS: Final = 1024
"""vLLM's limit for a list of prompts (VLLM_MAX_COMPLETION_PROMPTS)."""
_GREEDY_BELOW: Final = 1e-5
"""Temperature below which vLLM samples greedily."""
_RANGES: Final[Mapping[str, tuple[Callable[[float], bool], str]]] = {
    "temperature": (lambda value: 0 <= value <= 2, "in [0, 2]"),
    "top_p": (lambda value: 0 < value <= 1, "in (0, 1]"),
    "top_k": (lambda value: value >= -1, "0 (disable), or at least 1"),
    "min_p": (lambda value: 0 <= value <= 1, "in [0, 1]"),
    "presence_penalty": (lambda value: -2 <= value <= 2, "in [-2, 2]"),
    "frequency_penalty": (lambda value: -2 <= value <= 2, "in [-2, 2]"),
    "repetition_penalty": (lambda value: value > 0, "greater than zero"),
}
_NOT_EMULATED: Final[Mapping[str, tuple[object, ...]]] = {
    "echo": (False,),
    "logprobs": (),
    "top_logprobs": (0,),
    "prompt_logprobs": (),
    "logprob_token_ids": (),
    "best_of": (1,),
    "use_beam_search": (False,),
    "suffix": (),
    "prompt_embeds": (),
    "logit_bias": ({},),
    "allowed_token_ids": ([],),
    "bad_words": ([],),
    "stop_token_ids": ([],),
    "response_format": ({"type": "text"},),
    "structured_outputs": (),
    "tool_choice": ("none", "auto"),
    "return_token_ids": (False,),
    "truncate_prompt_tokens": (),
    "priority": (0,),
}
"""Options that would change the response or its latency. Each option maps to the values that disable the option."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt of a completion request."""

    text: bytes
    tokens: int

    def keys(self, block_tokens: int) -> list[int]:
        """Return a key for each full block of the prompt. A key depends on the block and on all blocks before it."""
        size, keys, chain = block_tokens * BYTES_PER_TOKEN, [], blake2b(digest_size=8)
        for end in range(size, min(len(self.text), self.tokens * BYTES_PER_TOKEN) + 1, size):
            chain.update(self.text[end - size : end])
            keys.append(int.from_bytes(chain.digest(), "big"))
        return keys


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRequest:
    """One completion request."""

    model: str
    """Requested model name. An empty name means the model that the endpoint serves."""
    prompts: tuple[Prompt, ...]
    choices_per_prompt: int
    limit_tokens: int | None
    min_tokens: int
    ignore_eos: bool
    greedy: bool
    stop: StopText | None
    held_chars: int
    """Number of characters that a stream holds back, because a stop string may begin with them."""
    stream: bool
    usage_in_stream: bool
    usage_in_every_event: bool
    chat: bool

    @property
    def input_tokens(self) -> int:
        """Total number of tokens of all prompts. A prompt counts once, even if a request asks for several choices."""
        return sum(prompt.tokens for prompt in self.prompts)

    def prompt_of(self, choice: int) -> Prompt:
        """Return the prompt to which a choice responds. `choice` is the index of the choice in the response."""
        return self.prompts[choice // self.choices_per_prompt]


def read_prompt(body: bytes, template_tokens: int = 0) -> Prompt:
    """Parse the prompt, or the messages of a chat, of a request to /tokenize.

    `template_tokens` are the tokens that the chat template adds to each message, in addition to the usual ones.
    """
    fields = _fields(body)
    if "messages" in fields:
        return _chat_prompt(fields["messages"], template_tokens)
    return _text_prompt(fields.get("prompt"))


def _fields(body: bytes) -> Mapping[str, object]:
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        raise UsageError("the request body is not JSON") from None
    if not isinstance(fields, dict):
        raise UsageError("the request body is not a JSON object")
    return fields


def read_completion(path: bytes, body: bytes, template_tokens: int = 0) -> CompletionRequest:
    """Parse a completion request. Raise an error for values that vLLM rejects and for options that are not emulated."""
    fields = _fields(body)
    chat = path.startswith(b"/v1/chat/")
    _reject_unemulated(fields, chat=chat)
    _check_sampling(fields)
    prompts = (_chat_prompt(fields.get("messages"), template_tokens),) if chat else _text_prompts(fields.get("prompt"))
    min_tokens, limit = _whole(fields, "min_tokens", 0, minimum=0), _limit(fields, chat=chat)
    if limit is not None and min_tokens > limit:
        raise UsageError(f"min_tokens must be less than or equal to max_tokens={limit}, got {min_tokens}.")
    stops, included = _stops(fields.get("stop")), _flag(fields, "include_stop_str_in_output")
    stream = _flag(fields, "stream")
    options = _stream_options(fields.get("stream_options"), stream=stream)
    return CompletionRequest(
        model=_model(fields.get("model")),
        prompts=prompts,
        choices_per_prompt=_choices(fields, len(prompts)),
        limit_tokens=limit,
        min_tokens=min_tokens,
        ignore_eos=_flag(fields, "ignore_eos"),
        greedy=_is_greedy(fields.get("temperature")),
        stop=first_stop(stops, min_tokens=min_tokens, included=included),
        held_chars=0 if included else max((len(text) - 1 for text in stops), default=0),
        stream=stream,
        usage_in_stream=_flag(options, "include_usage"),
        usage_in_every_event=_flag(options, "include_usage") and _flag(options, "continuous_usage_stats"),
        chat=chat,
    )


def _reject_unemulated(fields: Mapping[str, object], *, chat: bool) -> None:
    for name, idle in _NOT_EMULATED.items():
        value = fields.get(name)
        if value is None or value in idle or (name == "logprobs" and chat and value is False):
            continue
        raise UsageError(
            f"{name} is not emulated, because `penstock emulate` has no model and no tokenizer; "
            "leave it out, or use a real engine"
        )


def _check_sampling(fields: Mapping[str, object]) -> None:
    """Validate the sampling parameters.

    Sampling parameters do not change the emulated response, but vLLM rejects invalid values.
    """
    for name, (holds, text) in _RANGES.items():
        value = fields.get(name)
        if value is None:
            continue
        if not isinstance(value, int | float) or isinstance(value, bool) or not holds(value):
            raise UsageError(f"{name} must be {text}, got {_short(value)}.")


def _is_greedy(temperature: object) -> bool:
    return isinstance(temperature, int | float) and temperature < _GREEDY_BELOW


def _limit(fields: Mapping[str, object], *, chat: bool) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        if fields.get(name) is not None:
            return _whole(fields, name, 1, minimum=1)
    return None if chat else _DEFAULT_LIMIT


def _choices(fields: Mapping[str, object], prompts: int) -> int:
    count = _whole(fields, "n", 1, minimum=1)
    if count * prompts > _MAX_CHOICES:
        raise UsageError(f"n must be at most {_MAX_CHOICES // prompts}, got {_short(count)}.")
    return count


def _whole(fields: Mapping[str, object], name: str, default: int, *, minimum: int) -> int:
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise UsageError(f"{name} must be at least {minimum}, got {_short(value)}.")
    return value


def _flag(fields: Mapping[str, object], name: str) -> bool:
    value = fields.get(name)
    if value is None or isinstance(value, bool):
        return value is True
    raise UsageError(f"{name} must be true or false, got {_short(value)}.")


def _model(name: object) -> str:
    if name is None or isinstance(name, str):
        return name or ""
    raise UsageError("model must be a string")


def _stops(stop: object) -> list[str]:
    stops = [stop] if isinstance(stop, str) else [] if stop is None else stop
    if not isinstance(stops, list) or not all(isinstance(text, str) for text in stops):
        raise UsageError("stop must be a string or a list of strings")
    if not all(stops):
        raise UsageError("stop cannot contain an empty string.")
    return stops


def _stream_options(options: object, *, stream: bool) -> Mapping[str, object]:
    if not options:
        return {}
    if not isinstance(options, dict):
        raise UsageError("stream_options must be an object")
    if not stream:
        raise UsageError("Stream options can only be defined when `stream=True`.")
    return options


def _chat_prompt(messages: object, template_tokens: int) -> Prompt:
    if not isinstance(messages, list) or not messages:
        raise UsageError("messages must be a list of at least one message")
    parts = []
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise UsageError("each message must be an object with a role")
        content = message.get("content")
        text = content if isinstance(content, str) else json.dumps(content)
        parts.append(f"{message['role']}\n{text}\n".encode("utf-8", "surrogatepass"))
    prompt = b"".join(parts)
    return Prompt(prompt, -(-len(prompt) // BYTES_PER_TOKEN) + (_MESSAGE_TOKENS + template_tokens) * len(parts))


def _text_prompts(prompt: object) -> tuple[Prompt, ...]:
    """Parse the field `prompt`.

    A prompt is a text, a list of token ids, a list of texts, or a list of lists of token ids.
    """
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
        if len(prompt) > _MAX_PROMPTS:
            raise UsageError(f"prompt list length {len(prompt)} exceeds the maximum allowed count of {_MAX_PROMPTS}.")
        if all(type(one) is type(prompt[0]) for one in prompt):
            return tuple(map(_text_prompt, prompt))
    return (_text_prompt(prompt),)


def _text_prompt(prompt: object) -> Prompt:
    if isinstance(prompt, str) and prompt:
        text = prompt.encode("utf-8", "surrogatepass")
        return Prompt(text, -(-len(text) // BYTES_PER_TOKEN))
    if isinstance(prompt, list) and prompt and all(isinstance(token, int) and 0 <= token < 2**31 for token in prompt):
        return Prompt(b"".join(token.to_bytes(BYTES_PER_TOKEN, "little") for token in prompt), len(prompt))
    raise UsageError("prompt must be a string, a list of token ids, or a list of either, and not empty")


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:80] + "…"
