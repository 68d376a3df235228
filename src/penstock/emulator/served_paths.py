"""Lists the HTTP paths that an emulated server has, with their methods."""

from typing import Final

_METHODS: Final[dict[bytes, tuple[bytes, ...]]] = {
    b"/v1/chat/completions": (b"POST",),
    b"/v1/completions": (b"POST",),
    b"/v1/models": (b"GET",),
    b"/metrics": (b"GET",),
    b"/health": (b"GET",),
    b"/tokenize": (b"POST",),
    b"/ping": (b"GET", b"POST"),
}
_ENGINE_METHODS: Final[dict[str, dict[bytes, tuple[bytes, ...]]]] = {
    "vllm": {b"/version": (b"GET",), b"/reset_prefix_cache": (b"POST",)},
    "sglang": {
        **dict.fromkeys((b"/server_info", b"/get_server_info", b"/model_info", b"/get_model_info"), (b"GET",)),
        b"/flush_cache": (b"GET", b"POST"),
    },
}
"""Paths that only one engine serves."""
SLEEP_PATHS: Final[dict[str, dict[bytes, tuple[bytes, ...]]]] = {
    "vllm": {b"/sleep": (b"POST",), b"/wake_up": (b"POST",), b"/is_sleeping": (b"GET",)},
    "sglang": {b"/release_memory_occupation": (b"GET", b"POST"), b"/resume_memory_occupation": (b"GET", b"POST")},
}
"""Paths with their methods, by engine."""


def allowed_methods(path: bytes, engine: str, *, sleeps: bool) -> tuple[bytes, ...] | None:
    """Return the methods of a path. None if the server has no such path. `sleeps` says whether it has a sleep mode."""
    sleeping = SLEEP_PATHS.get(engine, {}) if sleeps else {}
    return _METHODS.get(path) or _ENGINE_METHODS.get(engine, {}).get(path) or sleeping.get(path)
