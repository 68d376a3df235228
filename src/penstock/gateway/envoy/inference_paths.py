"""Which paths reach the engines? Those of inference; everything else engines offer is for their operators.

The gateway lends its own key to every request it passes on, so that a path it passes is open to every client.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from penstock.errors import UsageError
from penstock.gateway.envoy.clusters import Value

COMPLETIONS: Final = "/v1/(chat/)?completions"
"""An expression for the paths whose only 404 is an engine's that does not know the model."""
INFERENCE: Final = (
    *("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"),
    *("/v1/embeddings", "/v1/pooling", "/pooling", "/v1/classify", "/classify"),
    *("/v1/score", "/score", "/v1/rerank", "/v2/rerank", "/rerank"),
    *("/v1/tokenize", "/tokenize", "/v1/detokenize", "/detokenize"),
    *("/v1/audio/transcriptions", "/v1/audio/translations"),
)
"""What vLLM and SGLang serve that a request and its answer are all of."""
STORED: Final = "/v1/responses/"
"""How the paths of responses begin that an engine keeps: only the endpoint that made one has it."""
_ALLOWED: Final = re.compile(r"/[A-Za-z0-9._~/-]+")


def checked(paths: Iterable[str]) -> tuple[str, ...]:
    """Return paths an operator adds to those of inference, each once; refuse what is no path."""
    for path in paths:
        if not _ALLOWED.fullmatch(path):
            raise UsageError(f"--allow-path: '{path}' is not a path; write one such as /v1/files, without a query")
    return tuple(dict.fromkeys(path for path in paths if path not in INFERENCE))


def none_of(paths: Sequence[str], *, stored: bool) -> list[Value]:
    """Match what is none of these paths, with a query or without; `stored`: nor a stored response."""
    starts = [f"{path}?" for path in paths] + ([STORED] if stored else [])
    wanted = [{"exact": path} for path in paths] + [{"prefix": start} for start in starts]
    return [{"name": ":path", "string_match": one, "invert_match": True} for one in wanted]
