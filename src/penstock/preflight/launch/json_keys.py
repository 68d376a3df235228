"""Checks the keys inside flags that take JSON and the values of speculative decoding, and names unchecked flags."""

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
_VALUES_SINCE: Final = Release("0.14.0")
"""First release of vLLM whose values of speculative decoding are checked: num_speculative_tokens is an integer above 0,
and a method without a draft of its own needs a model (vllm@v0.14.0:vllm/config/speculative.py#L61, #L259-L281, the same
in 0.28.0 to 0.33.0)."""
_NEED_A_MODEL: Final = frozenset(
    {"draft_model", "eagle", "eagle3", "dflash", "medusa", "mlp_speculator", "custom_class"}
)
"""Methods that draft with a separate model, or with a class that the launch names as its model."""
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


def check_speculation(
    launch: Launch, engine: str, version: Release, choices: Mapping[str, History]
) -> Iterator[FlagFinding]:
    """Yield the values of vLLM's speculative decoding that the release does not take."""
    flag, known = "--speculative-config", choices.get("speculative-config.method")
    config = speculative_config(launch.flags)
    if engine != "vllm" or config is None or known is None or version < _CHECKED_SINCE["speculative-config"]:
        return
    method = config.get("method")
    if isinstance(method, str) and (found := _unknown_method(flag, method, version, known)) is not None:
        yield found
        return
    if version < _VALUES_SINCE:
        return
    tokens = config.get("num_speculative_tokens")
    if tokens is not None and not _is_count(tokens):
        why = f"has num_speculative_tokens {str(tokens)[:40]!r}, which is not a whole number above 0"
        yield FlagFinding(name=flag, problem="wrong_value", release=None, instead=why)
    drafts = "draft_model" if method is None else method
    if tokens is None and config.get("model") is None and _needs_tokens(str(drafts), config):
        why = 'does not say how many tokens to draft; add "num_speculative_tokens", such as 1'
        yield FlagFinding(name=flag, problem="wrong_value", release=None, instead=why)
    if drafts in _NEED_A_MODEL and config.get("model") is None and tokens is not None:
        why = f'names no model, and the method {drafts} drafts with one; add its "model"'
        yield FlagFinding(name=flag, problem="wrong_value", release=None, instead=why)


def _needs_tokens(method: str, config: Mapping[str, object]) -> bool:
    """Return whether vLLM refuses the method without num_speculative_tokens.

    The number comes from the draft's config, which vLLM opens only for a model that the launch names or if the number
    is given (vllm@v0.14.0:vllm/config/speculative.py#L259, #L608-L613, the same at v0.27.1 and in 0.32.0).
    """
    return method.endswith(("mtp", "ngram")) and "num_speculative_tokens_per_batch_size" not in config


def _unknown_method(flag: str, method: str, version: Release, known: History) -> FlagFinding | None:
    value = f"with the method '{method[:40]}'"
    if method in known.entries:
        return release_finding(flag, method, version, known, value=value)
    near = get_close_matches(method, known.names_in(version), n=1, cutoff=0.6)
    return FlagFinding(
        name=flag,
        value=value,
        problem="unknown_value",
        release=str(version),
        instead=near[0] if near else None,
        certain=was_read(version, known),
    )


def _is_count(value: object) -> bool:
    """Return whether pydantic reads a value as an integer above 0. Text of digits and whole floats count."""
    if isinstance(value, str):
        return value.strip().isdecimal() and int(value) > 0
    return isinstance(value, int | float) and value > 0 and value == int(value)


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
