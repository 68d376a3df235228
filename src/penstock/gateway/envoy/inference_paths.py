"""Lists the paths that the gateway forwards to the engines. Only inference paths are forwarded by default.

An engine's other paths are meant for operators. The gateway adds the engines' API key to every forwarded request, so
any client can use any forwarded path.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from penstock.errors import UsageError
from penstock.gateway.envoy.clusters import Value

COMPLETIONS: Final = "/v1/(chat/)?completions"
"""Regular expression for paths on which 404 always means that an engine does not know the model."""
INFERENCE: Final = (
    *("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"),
    *("/v1/embeddings", "/v1/pooling", "/pooling", "/v1/classify", "/classify"),
    *("/v1/score", "/score", "/v1/rerank", "/v2/rerank", "/rerank"),
    *("/v1/tokenize", "/tokenize", "/v1/detokenize", "/detokenize"),
    *("/v1/audio/transcriptions", "/v1/audio/translations"),
)
"""Stateless inference paths of vLLM and SGLang: each response depends on its request alone."""
STORED: Final = "/v1/responses/"
"""Path prefix of stored responses. A response is stored only at the endpoint that generated it."""
_ALLOWED: Final = re.compile(r"/[A-Za-z0-9._~/-]+")


def validate_paths(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the operator's additional paths, without duplicates and without inference paths.

    Raise an error if a path is invalid.
    """
    for path in paths:
        if not _ALLOWED.fullmatch(path):
            raise UsageError(f"--allow-path: '{path}' is not a path; use one such as `/v1/files`, without a query")
    return tuple(dict.fromkeys(path for path in paths if path not in INFERENCE))


def match_none_of(paths: Sequence[str], *, stored: bool) -> list[Value]:
    """Return matchers that together match every path that is not in `paths`. The query is ignored.

    If `stored` is true, paths of stored responses are not matched either.
    """
    starts = [f"{path}?" for path in paths] + ([STORED] if stored else [])
    matchers = [{"exact": path} for path in paths] + [{"prefix": start} for start in starts]
    return [{"name": ":path", "string_match": one, "invert_match": True} for one in matchers]
