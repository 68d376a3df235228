"""Reads the model, token limits and prompt prefix from a request body that may be truncated."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from json import JSONDecoder
from json.decoder import WHITESPACE  # type: ignore[attr-defined]
from typing import Final, NamedTuple

_DECODER: Final = JSONDecoder()
_MAX_TOKENS: Final = 2**31
_MAX_CHOICES: Final = 128
"""OpenAI's maximum value of `n`, the number of choices. Engines reject a value above their maximum batch size."""
_SEARCHED_BYTES: Final = 4096
_SHEDDABLE: Final = frozenset({"batch", "sheddable", "low"})
_WEIGHTS: Final[Mapping[str, float]] = {"critical": 4.0, "high": 2.0}
_PROMPT_KEYS: Final = (b'"messages"', b'"prompt"', b'"input"')
_FORM_MODEL: Final = re.compile(rb'name="?model"?\r\n(?:[^\r\n]+\r\n)*\r\n([^\r\n]*)\r\n--')
"""Matches the field `model` of a multipart/form-data body. OpenAI's client sends audio as multipart/form-data."""


class BadBody(Exception):  # noqa: N818 - the name matches the HTTP answer
    """Error for a request body that no engine would accept."""


class RequestBody(NamedTuple):  # created per request; a frozen dataclass takes three times as long
    """Fields of a request body. A field is None if the body does not have it or was truncated before it."""

    model: str | None
    limit_tokens: int | None
    stream: bool
    body_bytes: int
    """Size of the whole body in bytes, including any truncated rest that the picker did not get."""
    prefix_from: int
    """Byte offset at which the prompt begins in the body."""
    choices: int = 1
    """Number of requested choices (`n`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHints:
    """Routing hints from a request's headers."""

    objective: str = ""
    tenant: str = ""
    ttft_s: float | None = None
    tpot_s: float | None = None

    @property
    def weight(self) -> float:
        """Weight of a missed SLO of this request. An ordinary request has the weight 1."""
        return _WEIGHTS.get(self.objective, 1.0)

    @property
    def sheddable(self) -> bool:
        """True if the request may be shed when no endpoint can serve it in time."""
        return self.objective in _SHEDDABLE


def read_body(body: bytes, whole_bytes: int, *, cut: bool = False) -> RequestBody:
    """Parse a request body. `cut` is true if `body` is only the first part of a body of `whole_bytes` bytes.

    A picker rejects a request only if it has the complete body. If the body is truncated or missing, the engine decides
    whether to reject the request.
    """
    fields = _form_fields(body) if body.startswith(b"--") else _first_fields(body) if cut else _all_fields(body)
    model = fields.get("model")
    if model is not None and not isinstance(model, str):
        if not cut:
            raise BadBody("model must be a string")
        model = None
    stream, visible_bytes = fields.get("stream") is True, len(body)
    return RequestBody(
        model, _limit(fields), stream, max(visible_bytes, whole_bytes), _prompt_at(body), _choices(fields)
    )


def _prompt_at(body: bytes) -> int:
    """Return the byte offset at which the prompt begins.

    Prefixes are compared from the start of the prompt, so that different fields before the prompt do not matter.
    """
    for name in _PROMPT_KEYS:
        at = body.find(name, 0, _SEARCHED_BYTES)
        if at >= 0:
            return at
    return 0


def _all_fields(body: bytes) -> Mapping[str, object]:
    if not body:
        return {}
    try:
        text = body.decode("utf-8", "surrogatepass")
        fields, end = _DECODER.raw_decode(text) if text.startswith("{") else (None, 0)
        if end != len(text):
            fields = json.loads(text)
    except (ValueError, RecursionError):
        raise BadBody("the request body is not JSON") from None
    if not isinstance(fields, dict):
        raise BadBody("the request body is not a JSON object")
    return fields


def _form_fields(body: bytes) -> Mapping[str, object]:
    """Return the field `model` of a form. The other fields of a form say nothing about the length of the response."""
    match = _FORM_MODEL.search(body)
    return {} if match is None else {"model": match[1].decode("utf-8", "replace")}


def _first_fields(body: bytes) -> Mapping[str, object]:
    """Return the fields of a JSON object up to the point where the text ends or becomes invalid.

    A truncated field is left out.
    """
    text = body.decode("utf-8", "ignore")
    at = WHITESPACE.match(text, 0).end()
    fields: dict[str, object] = {}
    if text[at : at + 1] != "{":
        return fields
    at += 1
    try:
        while True:
            at = WHITESPACE.match(text, at).end()
            key, at = _DECODER.raw_decode(text, at)
            at = WHITESPACE.match(text, at).end()
            if text[at] != ":" or not isinstance(key, str):
                break
            at = WHITESPACE.match(text, at + 1).end()
            value, at = _DECODER.raw_decode(text, at)
            fields[key] = value
            at = WHITESPACE.match(text, at).end()
            if text[at] != ",":
                break
            at += 1
    except (ValueError, IndexError, RecursionError):  # truncated, invalid, or an integer longer than Python parses
        pass
    return fields


def _limit(fields: Mapping[str, object]) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        value = fields.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MAX_TOKENS:
            return value
    return None


def _choices(fields: Mapping[str, object]) -> int:
    value = fields.get("n")
    return min(value, _MAX_CHOICES) if isinstance(value, int) and value > 1 else 1
