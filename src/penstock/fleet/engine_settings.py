"""Which settings of an engine count here? Those that decide memory, steps and what a replica can hold, with bounds.

A setting that nobody reads would be a promise nobody keeps, so that every other one is refused by name.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final, Literal

from penstock.errors import UsageError

EngineSetting = str | int | float | bool
Kind = Literal["count", "fraction", "flag"]

ENGINE_FIELDS: Final[Mapping[str, str]] = {
    "max_num_batched_tokens": "max_batched_tokens",
    "chunked_prefill_size": "max_batched_tokens",
    "max_num_seqs": "max_sequences",
    "max_running_requests": "max_sequences",
    "gpu_memory_utilization": "memory_fraction",
    "mem_fraction_static": "memory_fraction",
    "block_size": "block_tokens",
    "page_size": "block_tokens",
    "kv_cache_memory_bytes": "kv_cache_bytes",
}
"""What the engines call what decides how memory and steps are divided."""
_CONTEXT: Final = ("max_model_len", "context_length")
_KINDS: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(ENGINE_FIELDS, "count"),
    "gpu_memory_utilization": "fraction",
    "mem_fraction_static": "fraction",
    **dict.fromkeys(_CONTEXT, "count"),
    "enable_prefix_caching": "flag",
    "disable_radix_cache": "flag",
}
_WRITE: Final[Mapping[Kind, str]] = {
    "count": "a whole number of 1 or more",
    "fraction": "a share above 0 and up to 1, such as 0.92",
    "flag": "true or false",
}


def check_setting(name: str, value: EngineSetting) -> None:
    """Refuse a setting that is not read, or a value it cannot have."""
    kind = _KINDS.get(name)
    if kind is None:
        near = get_close_matches(name, _KINDS, n=1, cutoff=0.7)
        hint = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(_KINDS)}"
        raise UsageError(f"setting `{name[:40]}` changes nothing here; leave it to the engine's command line, {hint}")
    if not _possible(kind, value):
        raise UsageError(f"setting {name} is {value}; write {_WRITE[kind]}")


def _possible(kind: Kind, value: EngineSetting) -> bool:
    if kind == "flag" or isinstance(value, bool):
        return kind == "flag" and isinstance(value, bool)
    if isinstance(value, str):
        return False
    return 0 < value <= 1 if kind == "fraction" else value >= 1 and value == int(value)


def context_limit(settings: Mapping[str, EngineSetting]) -> int | None:
    """Prompt and answer together that the engine is started for; None where it takes what the model does."""
    said = [int(settings[name]) for name in _CONTEXT if name in settings]
    return min(said, default=None)


def caches_prefixes(settings: Mapping[str, EngineSetting]) -> bool:
    """Whether what prompts begin with alike is kept: so unless it is switched off."""
    return settings.get("enable_prefix_caching") is not False and settings.get("disable_radix_cache") is not True


def settings_schema() -> dict[str, object]:
    """Return each setting's values, for editors."""
    kinds: Mapping[Kind, object] = {
        "count": {"type": "integer", "minimum": 1},
        "fraction": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        "flag": {"type": "boolean"},
    }
    return {name: kinds[kind] for name, kind in _KINDS.items()}
