"""Computes the outcomes of ended requests: tokens, times, and whether each request met its SLO.

The rules work on columns, because the scraper of a busy gateway records thousands of requests per second.
"""

import math
from typing import Final, NamedTuple

import numpy as np

from penstock.gateway.state.request_outcome import OUTCOME, column_types
from penstock.routing.records import Records

_STREAM_TOKEN_BYTES: Final = 220.0
"""Bytes of a streamed chunk with one token, without the name of the model: `data: {"id": ..., "choices": [...]}`."""
_TOKEN_BYTES: Final = 4.5
_WHOLE_BYTES: Final = 450.0
"""Bytes of a whole response without its text."""
_BAD: Final = 400
_SERVER_ERROR: Final = 500
_COUNTED: Final = np.array(["engine", "bytes", "expected"], object)
_MISSED, _UNSEEN, _MET, _NO_LIMIT = range(4)
"""Judgements of one limit. The judgement of a request is the lowest of its limits."""
_KEPT: Final = np.array([0, -1, 1, -1], np.int8)


class EndedRequest(NamedTuple):
    """What is known of a request at its end. The defaults are those of a refused request. Times are of one clock."""

    ended_unix_s: float
    tenant: str
    model: str
    slo_class: str
    status: int
    waited_s: float
    request_bytes: int
    input_tokens: int
    """Estimated from the bytes."""
    pool: str = ""
    endpoint: str = ""
    sent_s: float = 0.0
    first_s: float = 0.0
    """Time of the first piece of a stream; 0 if it was not seen."""
    ended_s: float = 0.0
    failed: bool = True
    left: bool = False
    """Whether the client left before the end."""
    streamed: bool = False
    generates: bool = False
    """Whether the path generates tokens. Embeddings and scores do not."""
    cached_tokens: int = 0
    """Tokens of the prompt that were expected in the cache of the endpoint that served the request."""
    expected_output_tokens: int = 0
    response_bytes: int = -1
    """-1 if nothing was seen of the response."""
    counted_prompt: int = -1
    """This and the next two: tokens as the engine wrote in the response; -1 if it did not."""
    counted_cached: int = -1
    counted_output: int = -1
    ttft_limit_s: float = math.inf
    """This and the next two: infinity if there is no limit."""
    tpot_limit_s: float = math.inf
    e2e_limit_s: float = math.inf


ENDED_REQUEST: Final = column_types(EndedRequest.__annotations__)
_SAME: Final = tuple(name for name in OUTCOME.names or () if name in EndedRequest._fields)


def request_outcomes(ended: Records) -> Records:
    """Return an array of `OUTCOME` for an array of `ENDED_REQUEST`."""
    outcomes = np.zeros(len(ended), OUTCOME)
    for name in _SAME:
        outcomes[name] = ended[name]
    sent_s, first_s = ended["sent_s"], ended["first_s"]
    whole_s = ended["ended_s"] - sent_s
    outcomes["duration_s"] = np.maximum(0.0, whole_s)
    outcomes["ttft_s"] = ttft_s = np.where(first_s != 0, first_s - sent_s, math.nan)
    _count_prompts(ended, outcomes)
    known = (ended["status"] >= _BAD) | (ended["response_bytes"] >= 0)
    tokens = np.where(known, _response_tokens(ended), ended["expected_output_tokens"])
    outcomes["output_tokens"] = tokens
    outcomes["tokens_from"] = _COUNTED[np.where(known, ended["counted_output"] < 0, 2)]
    outcomes["kept"] = _judge_slos(ended, whole_s + ended["waited_s"], ttft_s, np.where(known, tokens, -1))
    return outcomes


def _count_prompts(ended: Records, outcomes: Records) -> None:
    """Fill in the tokens of prompts and of their cached prefixes, and where they come from."""
    counted, cached = ended["counted_prompt"], ended["counted_cached"]
    prompts = np.where(counted < 0, ended["input_tokens"], counted)
    expected = np.minimum(ended["cached_tokens"], ended["input_tokens"])
    outcomes["input_tokens"] = prompts
    outcomes["cached_tokens"] = np.minimum(np.where((counted < 0) | (cached < 0), expected, cached), prompts)
    outcomes["prompt_from"] = _COUNTED[(counted < 0).astype(np.int8)]


def _response_tokens(ended: Records) -> Records:
    """Return the tokens of responses that the engine counted, or estimates from their bytes."""
    size, counted = ended["response_bytes"], ended["counted_output"]
    names = np.fromiter(map(len, ended["model"].tolist()), np.int64, len(ended))
    whole = np.where(size > 0, np.maximum(1.0, np.rint((size - _WHOLE_BYTES) / _TOKEN_BYTES)), 0.0)
    estimates = np.where(ended["streamed"], np.rint(size / (_STREAM_TOKEN_BYTES + names)), whole)
    tokens = np.where(counted < 0, estimates.astype(np.int64), counted)
    return np.where((ended["status"] < _BAD) & ended["generates"], tokens, 0)


def _judge_slos(ended: Records, whole_s: Records, ttft_s: Records, tokens: Records) -> Records:
    """Return whether requests met their SLOs: 1, 0, or -1 if that was not seen, or if there is no SLO.

    Without a seen first token, a limit still is known to be met if the whole response took no longer. `tokens` are -1
    where they are not known.
    """
    status, waited_s, e2e_s, tpot_s = (ended[name] for name in ("status", "waited_s", "e2e_limit_s", "tpot_limit_s"))
    limited = (tpot_s < math.inf) & (tokens > 1)  # a single token takes no time after the first one
    decode_s = np.where(limited, tpot_s, 0.0) * np.maximum(0, tokens - 1)
    judged = np.minimum(_judge(whole_s, whole_s, e2e_s), _judge(whole_s, ttft_s + waited_s, ended["ttft_limit_s"]))
    judged = np.minimum(judged, _judge(whole_s, whole_s - waited_s - ttft_s, np.where(limited, decode_s, math.inf)))
    judged[(status <= 0) | (status >= _BAD)] = _UNSEEN  # the client left, or its request was wrong
    late = ended["left"] & ended["streamed"] & np.isnan(ttft_s) & (whole_s > ended["ttft_limit_s"])
    judged[ended["left"] & (judged != _MISSED)] = _UNSEEN
    judged[late] = _MISSED  # the client waited in vain for longer than its limit
    judged[ended["failed"] | (status >= _SERVER_ERROR)] = _MISSED
    return _KEPT[judged]


def _judge(most_s: Records, seen_s: Records, limit_s: Records) -> Records:
    """Judge a time by its limit. If the time was not seen (NaN), it is known to be at most `most_s`."""
    unseen = np.isnan(seen_s)
    met = np.where(unseen, most_s, seen_s) <= limit_s
    return np.where(limit_s < math.inf, np.where(met, _MET, np.where(unseen, _UNSEEN, _MISSED)), _NO_LIMIT)
