"""What does Envoy say where it answers itself? The same JSON as engines and pickers, whatever went wrong."""

from typing import Final

from penstock.gateway.envoy.clusters import Value

_FLAGS: Final = ("UH", "UF", "UO", "UT", "UC", "UPE", "URX", "SI", "LR", "UR", "NC")
"""Endpoints that cannot be reached, are silent or cut: no picker and no route of ours answers with these."""
_SAID: Final = "%LOCAL_REPLY_BODY%"


def own_answers() -> Value:
    """Which of Envoy's own answers are rewritten: not those of pickers and routes, which are JSON already."""
    found = [
        _by_status(401, "authentication_error", "no key or token this gateway knows"),
        _by_status(403, "permission_error", "the token is for another audience, or an upgrade is asked for"),
        _by_status(408, "invalid_request_error", "the request did not come to its end in time"),
        _by_status(413, "invalid_request_error", "the body is too large"),
        _by_status(431, "invalid_request_error", "the headers are too large"),
        _by_status(500, "server_error", "no picker answered; try again", retry_after_s=1),
        _rewritten({"response_flag_filter": {"flags": list(_FLAGS)}}, "server_error", _SAID),
        _rewritten({"response_flag_filter": {"flags": ["DPE"]}}, "invalid_request_error", _SAID),
    ]
    return {"mappers": found}


def _by_status(status: int, kind: str, message: str, retry_after_s: int | None = None) -> Value:
    value = {"default_value": status, "runtime_key": f"penstock.none_{status}"}
    asked: Value = {"status_code_filter": {"comparison": {"op": "EQ", "value": value}}}
    made = _rewritten(asked, kind, message)
    if retry_after_s is not None:
        made["headers_to_add"] = [{"header": {"key": "retry-after", "value": str(retry_after_s)}}]
    return made


def _rewritten(which: Value, kind: str, message: str) -> Value:
    error: Value = {"message": message, "type": kind, "param": None, "code": "%RESPONSE_CODE%"}
    return {"filter": which, "body_format_override": {"json_format": {"error": error}}}
