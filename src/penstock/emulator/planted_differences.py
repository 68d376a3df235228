"""Defines differences that a command can plant in an emulated server, so that a comparison of servers can be tested.

A planted difference changes what the server says about itself, and its answers where a real server's answers would
change. It does not change the time of a step.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from penstock.emulator.emulated_endpoint import EmulatedReplica
from penstock.errors import UsageError

_SGLANG_FIELDS: Final = {
    "attention_backend": str,
    "schedule_policy": str,
    "disable_cuda_graph": bool,
    "enable_hierarchical_cache": bool,
}
"""Further fields of SGLang's /server_info, with the type of their values."""
Plant = Callable[[EmulatedReplica, Any], EmulatedReplica]


def _facts(**changes: object) -> Callable[[EmulatedReplica], EmulatedReplica]:
    return lambda replica: replace(replica, facts=replace(replica.facts, **changes))  # type: ignore[arg-type] # by name


def _prefix_caching(replica: EmulatedReplica, value: bool) -> EmulatedReplica:  # noqa: FBT001 - a value of a command
    simulated = replace(replica.simulated, prefix_caching=value)
    return replace(replica, simulated=simulated, facts=replace(replica.facts, prefix_caching=value))


def _sglang_field(name: str, replica: EmulatedReplica, value: object) -> EmulatedReplica:
    return _facts(more_fields={**replica.facts.more_fields, name: value})(replica)


_PLANTS: Final[Mapping[str, tuple[type, Plant]]] = {
    "version": (str, lambda replica, value: _facts(version=value)(replica)),
    "weights": (str, lambda replica, value: _facts(weights=value, other_text=True)(replica)),
    "checkpoint": (str, lambda replica, value: _facts(checkpoint=value, other_text=True)(replica)),
    "revision": (str, lambda replica, value: _facts(revision=value, other_text=True)(replica)),
    "kv": (str, lambda replica, value: _facts(cache_dtype=value)(replica)),
    "max_tokens": (int, lambda replica, value: replace(replica, max_tokens=value)),
    "answer_cap": (int, lambda replica, value: _facts(answer_cap=value)(replica)),
    "prefix_caching": (bool, _prefix_caching),
    "drafted_tokens": (int, lambda replica, value: _facts(drafted_tokens=value)(replica)),
    "tokenizer": (int, lambda replica, value: _facts(tokenizer=value)(replica)),
    "template_tokens": (int, lambda replica, value: _facts(template_tokens=value)(replica)),
    "max_sequences": (int, lambda replica, value: _facts(max_sequences=value)(replica)),
    "max_batched_tokens": (int, lambda replica, value: _facts(max_batched_tokens=value)(replica)),
    "tp": (int, lambda replica, value: _facts(split=replace(replica.facts.split, tp=value))(replica)),
    "kv_blocks": (
        int,
        lambda replica, value: replace(replica, simulated=replace(replica.simulated, kv_blocks=value)),
    ),
    "block_tokens": (
        int,
        lambda replica, value: replace(replica, simulated=replace(replica.simulated, block_tokens=value)),
    ),
    "adapter": (str, lambda replica, value: replace(replica, adapters=(*replica.adapters, value))),
    **{name: (kind, partial(_sglang_field, name)) for name, kind in _SGLANG_FIELDS.items()},
}
DIFFERENCES: Final = tuple(_PLANTS)


def plant(replica: EmulatedReplica, difference: object, value: object) -> EmulatedReplica:
    """Return the replica with a difference. `difference` and `value` are values of a command's JSON object."""
    if not isinstance(difference, str) or difference not in _PLANTS:
        raise UsageError(f"'{difference}' is not a difference; use one of {', '.join(DIFFERENCES)}")
    kind, changed = _PLANTS[difference]
    if type(value) is not kind or (kind is int and isinstance(value, int) and value < 1):
        wanted = {str: "a text", int: "a whole number above 0", bool: "true or false"}[kind]
        raise UsageError(f"`value` of {difference} is {value!r}, but must be {wanted}")
    return changed(replica, value)
