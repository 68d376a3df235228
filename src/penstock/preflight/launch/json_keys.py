"""Checks the keys inside flags that take JSON, and names the flags whose keys are not checked."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Final

from penstock.fleet.release import Release
from penstock.preflight.facts.drafting import speculative_config
from penstock.preflight.facts.situation import Launch
from penstock.preflight.launch.release_flags import FlagFinding, release_finding, was_read
from penstock.preflight.rules.history import History

_CHECKED_SINCE: Final[Mapping[str, Release]] = {
    "speculative-config": Release("0.11.0"),
    "compilation-config": Release("0.16.0"),
}
"""First release of vLLM whose keys are checked. Older ones accept more than their dataclass lists, or were not read."""
_UNCHECKED: Final = ("hf-overrides", "model-loader-extra-config", "json-model-override-args")


def check_keys(launch: Launch, engine: str, version: Release, choices: Mapping[str, History]) -> Iterator[FlagFinding]:
    """Yield the keys in vLLM's JSON flags that the dataclass of the release does not have.

    A key that no release has stops start-up, because vLLM forbids such keys. A key that another release has may be
    translated, so that it is only a risk.
    """
    for flag, since in _CHECKED_SINCE.items():
        known = choices.get(f"{flag}.keys")
        if engine != "vllm" or known is None or version < since:
            continue
        for key in _keys(launch, flag):
            if key in known.entries:
                found = release_finding(f"--{flag}", key, version, known, value=f"with the key '{key}'")
                if found is not None:
                    yield replace(found, certain=False)
            else:
                near = get_close_matches(key, known.names_in(version), n=1, cutoff=0.6)
                yield FlagFinding(
                    name=f"--{flag}",
                    value=f"with the key '{key}'",
                    problem="unknown_value",
                    release=str(version),
                    instead=near[0] if near else None,
                    certain=was_read(version, known),
                )


def unchecked_keys(launch: Launch) -> list[str]:
    """Return one sentence for each JSON flag whose keys are not checked."""
    return [f"the keys inside --{name} are not checked" for name in _UNCHECKED if name in launch.flags]


def _keys(launch: Launch, flag: str) -> list[str]:
    if flag == "speculative-config":
        found: object = speculative_config(launch.flags) or {}
    else:
        try:
            found = json.loads(launch.flags.get(flag, "{}"))
        except (ValueError, RecursionError):
            return []
    return [str(key)[:80] for key in found] if isinstance(found, dict) else []
