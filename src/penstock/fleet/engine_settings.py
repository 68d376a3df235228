"""Lists the engine settings that affect memory, steps and capacity, with their bounds.

Every other setting is rejected with an error, because ignoring a setting silently would mislead the user.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Final, Literal

from penstock.errors import UsageError
from penstock.reading.scalars import Typed

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
"""Maps an engine's own name for a setting to the field of `Engine` that holds the setting."""
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
    """Raise an error if Penstock does not use a setting, or if the value of the setting is invalid."""
    kind = _KINDS.get(name)
    if kind is None:
        near = get_close_matches(name, _KINDS, n=1, cutoff=0.7)
        hint = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(_KINDS)}"
        raise UsageError(f"Penstock does not use the engine setting `{name[:40]}`; remove it here ({hint})")
    if not _possible(kind, value):
        raise UsageError(f"setting {name} is {value}; write {_WRITE[kind]}")


def _possible(kind: Kind, value: EngineSetting) -> bool:
    if kind == "flag" or isinstance(value, bool):
        return kind == "flag" and isinstance(value, bool)
    if isinstance(value, str):
        return False
    return 0 < value <= 1 if kind == "fraction" else value >= 1 and value == int(value)


def context_limit(settings: Mapping[str, EngineSetting]) -> int | None:
    """Return the context limit in tokens that the engine is started with; None for the model's own limit."""
    said = [int(settings[name]) for name in _CONTEXT if name in settings]
    return min(said, default=None)


def caches_prefixes(settings: Mapping[str, EngineSetting]) -> bool:
    """Return whether prefix caching is on, which is the default."""
    return settings.get("enable_prefix_caching") is not False and settings.get("disable_radix_cache") is not True


@dataclass(frozen=True, slots=True)
class _SettingsSchema:
    """Type annotation that gives editors the JSON schema of every engine setting."""

    def __get_pydantic_json_schema__(self, schema: object, handler: object) -> dict[str, object]:
        kinds: Mapping[Kind, object] = {
            "count": {"type": "integer", "minimum": 1},
            "fraction": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
            "flag": {"type": "boolean"},
        }
        known = {name: kinds[kind] for name, kind in _KINDS.items()}
        return {"type": "object", "properties": known, "additionalProperties": False}


EngineSettings = Annotated[Mapping[str, Typed], _SettingsSchema()]
"""Settings with which an engine is started, keyed by the engine's own names."""
