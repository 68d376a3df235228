"""Reads the model, token limits and prompt prefix from a request body, and routing hints from its headers."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from json import JSONDecoder
from typing import Final, NamedTuple

from penstock.gateway.state.headers import OBJECTIVE, TENANT, TPOT_MS, TTFT_MS

_DECODER: Final = JSONDecoder()
_MAX_TOKENS: Final = 2**31
_MAX_CHOICES: Final = 128
"""OpenAI's maximum value of `n`, the number of choices. Engines reject a value above their maximum batch size."""
_SEARCHED_BYTES: Final = 4096
_MAX_HINT_MS: Final = 1e7
_MAX_NAME: Final = 128
_HINT_HEADERS: Final = frozenset(name.encode() for name in (*OBJECTIVE, *TENANT, *TTFT_MS, *TPOT_MS))
_SHEDDABLE: Final = frozenset({"batch", "sheddable", "low"})
_WEIGHTS: Final[Mapping[str, float]] = {"critical": 4.0, "high": 2.0}
_PROMPT_KEYS: Final = (b'"messages"', b'"prompt"', b'"input"')
_FORM_MODEL: Final = re.compile(rb'name="?model"?\r\n(?:[^\r\n]+\r\n)*\r\n([^\r\n]*)\r\n--')
"""Matches the field `model` of a multipart/form-data body. OpenAI's client sends audio as multipart/form-data."""


class BadBody(Exception):  # noqa: N818 - the name matches the HTTP answer
    """Error for a request body that no engine would accept."""


class RequestBody(NamedTuple):  # created per request; a frozen dataclass takes three times as long
    """Fields of a request body. A field is None if the body does not have it."""

    model: str | None
    limit_tokens: int | None
    stream: bool
    body_bytes: int
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


def read_body(body: bytes) -> RequestBody:
    """Parse a request body. Raise BadBody if no engine would accept it."""
    fields = _form_fields(body) if body.startswith(b"--") else _all_fields(body)
    model = fields.get("model")
    if model is not None and not isinstance(model, str):
        raise BadBody("model must be a string")
    return RequestBody(
        model, _limit(fields), fields.get("stream") is True, len(body), _prompt_at(body), _choices(fields)
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


def _limit(fields: Mapping[str, object]) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        value = fields.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MAX_TOKENS:
            return value
    return None


def _choices(fields: Mapping[str, object]) -> int:
    value = fields.get("n")
    return min(value, _MAX_CHOICES) if isinstance(value, int) and value > 1 else 1


def request_hints(headers: Mapping[bytes, bytes]) -> RequestHints:
    """Read the routing hints from headers. Implausible values are ignored."""
    if _HINT_HEADERS.isdisjoint(headers):
        return RequestHints()
    return RequestHints(
        objective=_first(headers, OBJECTIVE).lower(),
        tenant=_first(headers, TENANT),
        ttft_s=_seconds(_first(headers, TTFT_MS)),
        tpot_s=_seconds(_first(headers, TPOT_MS)),
    )


def _first(headers: Mapping[bytes, bytes], names: tuple[str, ...]) -> str:
    for name in names:
        value = headers.get(name.encode())
        if value is not None:
            return value[:_MAX_NAME].decode("latin-1")
    return ""


def _seconds(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value / 1000 if math.isfinite(value) and 0 < value < _MAX_HINT_MS else None
