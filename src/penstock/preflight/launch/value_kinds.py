"""Checks whether a flag's value is of the right kind.

A value is a number, JSON or an address. A switch takes no value.
"""

import ipaddress
import json
import re
import socket
from collections.abc import Mapping
from typing import Final

from penstock.fleet.release import Release
from penstock.preflight.facts.launch_command import long_name
from penstock.preflight.facts.situation import Launch

_NO: Final = frozenset({"false", "no", "off", "0"})
_YES_OR_NO: Final = _NO | {"true", "yes", "on", "1"}
_NAME: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?")
_NUMERIC: Final = re.compile(r"[\d.]+")
_PORTED: Final = re.compile(r"([\w.-]+):(\d+)")
_ADDRESSES: Final = frozenset({"host", "master-addr", "data-parallel-address"})
_PLAIN_SWITCHES: Final = Release("0.8.5")
"""Before this release, these switches of vLLM took the value True or False (StoreBoolean in engine/arg_utils.py)."""
_STORED: Final = frozenset(
    {
        *("enable-chunked-prefill", "multi-step-stream-outputs"),
        *("disable-logprobs-during-spec-decoding", "disable-chunked-mm-input"),
    }
)
_PLAIN_OBJECTS: Final = Release("0.14.0")
_SUFFIXED: Final = re.compile(r"(?<=[:\[,\s])\d+(\.\d+)?[kmgtKMGT]\b")
"""Numbers with a suffix, such as 32k. vLLM also accepts them inside JSON values."""
_PAIRS: Final = re.compile(r"(\w{1,40})=(\d{1,9})")
"""The form `image=4`, which `--limit-mm-per-prompt` took before it took JSON."""
_PAIRED: Final = "limit-mm-per-prompt"
_WITHOUT_PAIRS: Final = Release("0.10.0")
"""The release in which vLLM announced to drop that form (nullable_kvs in engine/arg_utils.py at v0.8.5)."""
_WORDS: Final = {"json": "JSON value", "object": "JSON object", "number": "number", "whole": "whole number"}


def wrong_kind(
    name: str, value: str, launch: Launch, engine: str, version: Release, kinds: Mapping[str, str]
) -> str | None:
    """Return the problem with a flag's value.

    Return None if the value is of the right kind, or if any text is accepted.
    """
    if name in _ADDRESSES and launch.typed and name not in launch.bare:
        return _address(value)
    kind = next((kind for flag, kind in kinds.items() if long_name(flag) == name), None)
    if kind is None or not launch.typed:
        return None
    if kind == "switch":
        given = name not in launch.bare and (value.casefold() in _YES_OR_NO or f"--{name}={value}" in launch.typed)
        plain = engine != "vllm" or version >= _PLAIN_SWITCHES or name not in _STORED
        return f"takes no value; {_switch_fix(name, value, engine)}" if given and plain else None
    if name in launch.bare:
        return f"needs a value, a {_WORDS[kind]}"
    if kind in {"json", "object"}:
        # Before this release, a number alone (the level) was a valid compilation config.
        whole = kind == "object" and version >= _PLAIN_OBJECTS
        paired = (
            name == _PAIRED and version < _WITHOUT_PAIRS and all(_PAIRS.fullmatch(part) for part in value.split(","))
        )
        return None if paired else _json(value, whole=whole or name == "speculative-config")
    if kind == "number":
        return None if _is_number(value) else "is not a number"
    return None if re.fullmatch(r"-?\d{1,19}", value) else "is not a whole number"


def _switch_fix(name: str, value: str, engine: str) -> str:
    """Return a correction for a switch that was given a value, such as `write --no-x to turn it off`."""
    if value.casefold() not in _NO:
        return f"write --{name} alone, or leave it out"
    return f"write --no-{name} to turn it off" if engine == "vllm" else "leave it out to keep it off"


def _address(value: str) -> str | None:
    """Return the problem with a network address, or None if a resolver would accept the address."""
    if "://" in value:
        return "is a URL; write the address alone"
    if (ported := _PORTED.fullmatch(value)) is not None:
        return f"has a port; write {ported[1]} and --port {ported[2]}"
    if _NUMERIC.fullmatch(value):
        try:
            socket.inet_aton(value)
        except OSError:
            return "is not an address"
        return None
    if ":" in value:
        try:
            ipaddress.ip_address(value.strip("[]").partition("%")[0])
        except ValueError:
            return "is not an address"
        return None
    return None if _NAME.fullmatch(value) else "is not an address"


def _json(value: str, *, whole: bool) -> str | None:
    try:
        read = json.loads(_SUFFIXED.sub("1", value))
    except (ValueError, RecursionError):
        pair = _PAIRS.fullmatch(value)
        return "is not valid JSON" + (f"""; write '{{"{pair[1]}": {pair[2]}}}'""" if pair else "")
    return "is not a JSON object" if whole and not isinstance(read, dict) else None


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True
