"""Asks a server to score fixed prompts through OpenAI's completions API, and keeps its answers in files."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from penstock.parity.compare_answers import (
    DECODED_TOKENS,
    FORMAT,
    PROMPTS,
    TOP_TOKENS,
    Answers,
    Scored,
    digest,
)
from penstock.parity.http_client import MAX_ANSWER_BYTES, EndpointError, first_model, post_json, server_base

_PATH: Final = "/v1/completions"
_MAX_TOKENS: Final = 100_000


def ask(url: str, served: str | None) -> Answers:
    """Query a server with every prompt. The server scores each prompt, then continues the prompt greedily."""
    base = server_base(url)
    model = served or first_model(base)
    prompts, decoded = [], []
    for prompt in PROMPTS:
        body = {"model": model, "prompt": prompt, "temperature": 0, "seed": 0, "logprobs": TOP_TOKENS}
        prompts.append(_without_answer(post_json(base, _PATH, {**body, "max_tokens": 1, "echo": True}), base))
        decoded.append(_parse_scores(post_json(base, _PATH, {**body, "max_tokens": DECODED_TOKENS}), base))
    return Answers(model=model, prompts=tuple(prompts), decoded=tuple(decoded))


def save_answers(answers: Answers, path: Path) -> None:
    """Write a server's results as a reference file."""
    document = {
        "format": FORMAT,
        "prompts_digest": digest(),
        "model": answers.model,
        "prompts": [_plain(scored) for scored in answers.prompts],
        "decoded": [_plain(scored) for scored in answers.decoded],
    }
    try:
        path.write_text(json.dumps(document), encoding="utf-8")
    except OSError as error:
        raise EndpointError(f"{path}: {error.strerror or error}") from error


def load_answers(path: Path) -> Answers:
    """Read a reference file. Raise an error if the file was made with other prompts."""
    try:
        with path.open("rb") as file:
            document = json.loads(file.read(MAX_ANSWER_BYTES))
    except OSError as error:
        raise EndpointError(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError):
        raise EndpointError(
            f"{path} is not a reference file, because it is not valid JSON; make one with --save-reference"
        ) from None
    if not isinstance(document, dict) or document.get("format") != FORMAT or document.get("prompts_digest") != digest():
        raise EndpointError(
            f"{path} is not a reference file of this version of penstock; make a new one with --save-reference"
        )
    try:
        return Answers(
            model=str(document["model"]),
            prompts=tuple(_read(entry) for entry in document["prompts"]),
            decoded=tuple(_read(entry) for entry in document["decoded"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise EndpointError(f"{path} is damaged; make a new reference file with --save-reference") from None


def _without_answer(answer: Any, base: str) -> Scored:  # noqa: ANN401 - JSON of an external server
    """Return the scores of the prompt's tokens only.

    The response also has at least one generated token, which is removed.
    """
    scored = _parse_scores(answer, base)
    try:
        count = int(answer["usage"]["prompt_tokens"])
    except (KeyError, TypeError, ValueError):
        count = len(scored.tokens) - 1
    return Scored(tokens=scored.tokens[:count], logprobs=scored.logprobs[:count], top=scored.top[:count])


def _parse_scores(answer: Any, base: str) -> Scored:  # noqa: ANN401 - JSON of an external server
    try:
        found = answer["choices"][0]["logprobs"]
        return _read({"tokens": found["tokens"], "logprobs": found["token_logprobs"], "top": found["top_logprobs"]})
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        raise EndpointError(
            f"{base}: the server's response has no log-probabilities; configure the server to allow `logprobs`"
        ) from None


def _read(entry: Mapping[str, Any]) -> Scored:
    tokens, logprobs, top = entry["tokens"], entry["logprobs"], entry["top"]
    if not len(tokens) == len(logprobs) <= _MAX_TOKENS:
        raise ValueError("the numbers of tokens and of log-probabilities differ")
    return Scored(
        tokens=tuple(str(token) for token in tokens),
        logprobs=tuple(None if value is None else float(value) for value in logprobs),
        top=tuple({str(token): float(value) for token, value in (place or {}).items()} for place in top or ()),
    )


def _plain(scored: Scored) -> dict[str, object]:
    return {"tokens": scored.tokens, "logprobs": scored.logprobs, "top": [dict(place) for place in scored.top]}
