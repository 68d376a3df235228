"""Sends HTTP requests to a server under test, with limits on the response time and the response size."""

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from penstock.errors import PenstockError, UsageError

MAX_ANSWER_BYTES: Final = 1 << 24
_TIMEOUT_S: Final = 120.0
_SHUT: Final = frozenset({401, 403, 404, 405, 501})


class EndpointError(PenstockError):
    """Error for a server that is unreachable or does not follow the OpenAI API."""


class AbsentPathError(EndpointError):
    """Error for a path that a server does not have, or that it keeps shut."""


def server_base(url: str) -> str:
    """Return the address of a server without a trailing `/v1`."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise UsageError(f"'{url[:120]}' is not the address of a server; use `http://127.0.0.1:8000`, for example")
    return url.rstrip("/").removesuffix("/v1")


def get_text(base: str, path: str) -> str:
    """Return the text that a path answers."""
    return _read(Request(f"{base}{path}"), base).decode("utf-8", "replace")  # noqa: S310 - the scheme was checked


def get_json(base: str, path: str) -> Any:  # noqa: ANN401 - JSON of an external server
    """Return the JSON value that a path answers."""
    return _parse(_read(Request(f"{base}{path}"), base), base)  # noqa: S310 - the scheme was checked


def post_json(base: str, path: str, body: Mapping[str, object]) -> Any:  # noqa: ANN401 - JSON of an external server
    """Send a JSON object to a path, and return the JSON value that it answers."""
    data, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
    return _parse(_read(Request(f"{base}{path}", data, headers), base), base)  # noqa: S310 - the scheme was checked


def first_model(base: str) -> str:
    """Return the name of the first model that a server lists."""
    listed = get_json(base, "/v1/models")
    try:
        return str(listed["data"][0]["id"])
    except (KeyError, IndexError, TypeError):
        raise EndpointError(f"{base}/v1/models lists no model; name one with --served-model") from None


def _read(request: Request, base: str) -> bytes:
    try:
        with urlopen(request, timeout=_TIMEOUT_S) as response:  # noqa: S310 - the scheme was checked
            return bytes(response.read(MAX_ANSWER_BYTES))
    except HTTPError as error:
        text = error.read(2000).decode("utf-8", "replace").replace("\n", " ")
        kind = AbsentPathError if error.code in _SHUT else EndpointError
        raise kind(f"{base}: HTTP {error.code}: {text[:200]}") from None
    except (URLError, OSError) as error:
        raise EndpointError(f"{base}: {getattr(error, 'reason', error)}") from None


def _parse(answer: bytes, base: str) -> Any:  # noqa: ANN401 - JSON of an external server
    try:
        return json.loads(answer)
    except (ValueError, RecursionError):
        raise EndpointError(f"{base}: the server's response is not JSON; check the address") from None
