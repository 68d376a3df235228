"""Rewrites the error responses that Envoy itself creates into the JSON form that engines and pickers use."""

from typing import Final

from penstock.gateway.envoy.clusters import Value

_FLAGS: Final = ("UH", "UF", "UO", "UT", "UC", "UPE", "URX", "SI", "LR", "UR", "NC")
"""Response flags that mean an unreachable or silent endpoint, or a reset.

Responses of pickers and Envoy's direct responses have no response flag.
"""
_OWN_TEXT: Final = "%LOCAL_REPLY_BODY%"
_UNREACHABLE_S: Final = 5
"""Retry-After in seconds if no endpoint is reachable.

A scrape notices a recovered endpoint within a tenth of a second, but a restarted engine needs minutes to load its
model.
"""
_NO_HEADERS: Final[Value] = {
    "header_filter": {"header": {"name": ":method", "present_match": True, "invert_match": True}}
}
"""Matches Envoy's replies to input that is not a valid request.

Envoy's reply to an invalid request has no request headers and no response flag.
"""
_FORBIDDEN: Final = 403


def local_replies() -> Value:
    """Return the mappers for replies that Envoy itself creates.

    Replies from pickers and from routes need no mapper, because they are already JSON.
    """
    mappers = [
        _by_status(401, "authentication_error", "the API key or token is missing or unknown"),
        _by_status(403, "permission_error", "the token has another audience, or the request asks for an upgrade"),
        _by_status(408, "invalid_request_error", "the request was not received completely in time"),
        _by_status(413, "invalid_request_error", "the body is too large"),
        _by_status(426, "invalid_request_error", "use HTTP/1.1 or HTTP/2"),
        _by_status(431, "invalid_request_error", "the headers are too large"),
        _by_status(500, "server_error", "no picker answered; try again", retry_after_s=1),
        _with_retry_after(_rewrite(_flag_filter(*_FLAGS), "server_error", _OWN_TEXT), _UNREACHABLE_S),
        _rewrite(_NO_HEADERS, "invalid_request_error", _OWN_TEXT),
        # DPE with 503: the request was valid, so it is the tenant claim of its token that cannot be sent as a header.
        {
            **_rewrite(
                {"and_filter": {"filters": [_flag_filter("DPE"), _status(503)]}},
                "permission_error",
                "the token's tenant is not a valid header value",
            ),
            "status_code": _FORBIDDEN,
        },
        _rewrite(_flag_filter("DPE"), "invalid_request_error", _OWN_TEXT),
    ]
    return {"mappers": mappers}


def _by_status(status: int, kind: str, message: str, retry_after_s: int | None = None) -> Value:
    mapper = _rewrite(_status(status), kind, message)
    return mapper if retry_after_s is None else _with_retry_after(mapper, retry_after_s)


def _status(status: int) -> Value:
    value = {"default_value": status, "runtime_key": f"penstock.none_{status}"}
    return {"status_code_filter": {"comparison": {"op": "EQ", "value": value}}}


def _flag_filter(*flags: str) -> Value:
    return {"response_flag_filter": {"flags": list(flags)}}


def _with_retry_after(mapper: Value, after_s: int) -> Value:
    return {**mapper, "headers_to_add": [{"header": {"key": "retry-after", "value": str(after_s)}}]}


def _rewrite(which: Value, kind: str, message: str) -> Value:
    error: Value = {"message": message, "type": kind, "param": None, "code": "%RESPONSE_CODE%"}
    return {"filter": which, "body_format_override": {"json_format": {"error": error}}}
