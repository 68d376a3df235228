"""Checks whether a release accepts the flag values of a launch, by their kind, range and allowed choices."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Final

from penstock.fleet.release import Release
from penstock.preflight.facts.situation import Launch
from penstock.preflight.launch.json_keys import check_keys, check_speculation
from penstock.preflight.launch.release_flags import FlagFinding, release_finding, was_read
from penstock.preflight.launch.value_kinds import wrong_kind
from penstock.preflight.rules.history import History
from penstock.preflight.rules.knowledge import Knowledge

_WHOLE: Final[Mapping[str, tuple[int, int]]] = {
    "tensor-parallel-size": (1, 2**16),
    "pipeline-parallel-size": (1, 2**16),
    "data-parallel-size": (1, 2**16),
    "decode-context-parallel-size": (1, 2**16),
    "nnodes": (1, 2**16),
    "node-rank": (0, 2**16),
    "port": (0, 65535),
    "max-num-seqs": (1, 2**31),
    "max-num-batched-tokens": (1, 2**31),
    "block-size": (1, 2**20),
    "max-running-requests": (1, 2**31),
    "chunked-prefill-size": (-1, 2**31),
    "context-length": (1, 2**31),
    "page-size": (1, 2**20),
    "max-model-len": (-1, 2**31),
}
"""Flags with an integer value, each with the range that the engines accept."""
_SUFFIXED: Final = frozenset({"max-model-len", "max-num-batched-tokens"})
"""Flags whose value may have a suffix in vLLM: `32k` is thousands, `32K` is multiples of 1,024."""
_SHARES: Final = ("gpu-memory-utilization", "mem-fraction-static")
_LISTED: Final[Mapping[str, Sequence[str]]] = {
    "dtype": ("auto", "half", "float16", "bfloat16", "float", "float32"),
    "load-format": (
        *("auto", "hf", "pt", "safetensors", "npcache", "dummy", "mistral", "sharded_state", "tensorizer", "gguf"),
        *("bitsandbytes", "fastsafetensors", "instanttensor", "ipc_cache", "modelexpress"),
        *("runai_streamer", "runai_streamer_sharded"),
    ),
    "uvicorn-log-level": ("critical", "error", "warning", "info", "debug", "trace"),
}
"""Allowed values of vLLM flags, collected over all releases whose source code was read."""
_FOLDED: Final[Mapping[str, Release]] = {
    "moe-backend": Release("0"),
    "quantization": Release("0.16.0"),
    "load-format": Release("0.11.0"),
    "tokenizer-mode": Release("0.16.0"),
}
"""Flags whose value vLLM converts to lower case, each with the first release in which this was read.

`--moe-backend` also converts hyphens (engine/arg_utils.py). The others are converted in config/model.py and
config/load.py. In earlier releases their parser takes only the listed spelling.
"""
_PLUGINS: Final = {"tool-call-parser": "tool-parser-plugin", "reasoning-parser": "reasoning-parser-plugin"}
_BACKEND: Final = "attention-backend"
_BACKEND_VARIABLE: Final = "VLLM_ATTENTION_BACKEND"
"""Environment variable that selected the attention backend in releases of vLLM that had no flag for the backend."""
_SUFFIX: Final = re.compile(r"\d+(\.\d+)?[kmgtKMGT]")


def check_values(
    launch: Launch,
    engine: str,
    version: Release,
    knowledge: Knowledge,
    context_tokens: int | None = None,
) -> tuple[FlagFinding, ...]:
    """Check the flag values of a launch against the release. Values that contain shell variables are skipped."""
    choices, kinds = knowledge.choices[engine], knowledge.kinds[engine]
    found = []
    for name, value in launch.flags.items():
        if "$" in value:
            continue
        kind = wrong_kind(name, value, launch, engine, version, kinds)
        wrong = kind and _wrong(f"--{name}", None if name in launch.bare else value, kind)
        if finding := wrong or _number(name, value, engine) or _choice(name, value, launch, version, choices):
            found.append(finding)
    return (
        *found,
        *check_keys(launch, engine, version, choices),
        *check_speculation(launch, engine, version, choices),
        *_backend_variable(launch, engine, version, knowledge),
        *_together(launch, engine, context_tokens),
    )


def requested_backend(launch: Launch, engine: str, version: Release, knowledge: Knowledge) -> str | None:
    """Return the attention backend that the launch requests, or None.

    The flag comes first. The environment variable counts only in releases that read it.
    """
    variables = knowledge.flags[engine].variables
    read = variables is not None and variables.has(_BACKEND_VARIABLE, version)
    named = launch.environment.get(_BACKEND_VARIABLE) if read else None
    return launch.flag(_BACKEND) or named


def _backend_variable(launch: Launch, engine: str, version: Release, knowledge: Knowledge) -> Iterator[FlagFinding]:
    """Check the value of the backend variable in the same way as the value of the backend flag."""
    value = requested_backend(launch, engine, version, knowledge)
    if value is None or launch.flag(_BACKEND) is not None or "$" in value:
        return
    if (finding := _choice(_BACKEND, value, launch, version, knowledge.choices[engine])) is not None:
        yield replace(finding, name=_BACKEND_VARIABLE)


def takes(name: str, value: str, version: Release, table: Mapping[str, History]) -> bool:
    """Return whether a release accepts a value of a flag. A flag without a known list of values accepts any value."""
    known = table.get(name)
    return known is None or known.has(_listed_value(_convert_case(name, value, version, table), known), version)


def _convert_case(name: str, value: str, version: Release, table: Mapping[str, History]) -> str:
    """Return a value as vLLM's parser converts it before it looks the value up."""
    since = _FOLDED.get(name)
    if since is None or "tokenizer-mode" not in table or version < since:
        return value
    return value.lower().replace("-", "_") if name == "moe-backend" else value.lower()


def _listed_value(value: str, known: History) -> str:
    """Return a value in the spelling of the table. vLLM's backends are an enum with upper-case names."""
    return value if value in known.entries else value.upper()


def _number(name: str, value: str, engine: str) -> FlagFinding | None:
    flag = f"--{name}"
    if name in _SHARES:
        share = _float(value)
        if share is None:
            return _wrong(flag, value, "is not a number")
        # vLLM accepts a share of 1, but SGLang must leave some memory free.
        fine = 0 < share <= 1 if engine == "vllm" else 0 < share < 1
        return None if fine else _wrong(flag, value, "is not a share of memory between 0 and 1")
    if name not in _WHOLE:
        return None
    if name == "max-model-len" and value == "auto":
        return None
    if name in _SUFFIXED and engine == "vllm" and _SUFFIX.fullmatch(value):
        return None
    if re.fullmatch(r"-?\d{1,12}", value) is None:
        return _wrong(flag, value, "is not a whole number")
    low, high = _WHOLE[name]
    return None if low <= int(value) <= high and (int(value) or low == 0) else _wrong(flag, value, "is out of range")


def _choice(
    name: str, value: str, launch: Launch, version: Release, table: Mapping[str, History]
) -> FlagFinding | None:
    flag, typed = f"--{name}", value
    value = _convert_case(name, value, version, table)
    if name in _LISTED and "tokenizer-mode" in table:
        return None if value in _LISTED[name] else _unknown(flag, typed, _LISTED[name])
    known = table.get(name)
    if known is None or launch.flag(_PLUGINS.get(name, "")) is not None or _parser_is_unused(name, launch, table):
        return None
    listed = _listed_value(value, known)
    if listed in known.entries:
        return release_finding(flag, listed, version, known, value=typed)
    unknown = _unknown(flag, typed, known.names_in(version))
    return replace(unknown, release=str(version), certain=was_read(version, known))


def _parser_is_unused(name: str, launch: Launch, table: Mapping[str, History]) -> bool:
    """Return whether vLLM ignores the tool parser, which it uses only with automatic tool choice."""
    theirs = "tokenizer-mode" in table
    return name == "tool-call-parser" and theirs and launch.flag("enable-auto-tool-choice") is None


def _together(launch: Launch, engine: str, context_tokens: int | None) -> Iterator[FlagFinding]:
    """Yield combinations of flags that vLLM refuses.

    vLLM refuses automatic tool choice without a parser. It also refuses a step size in tokens below the context length
    if prefill is not chunked, or below the maximum number of sequences.
    """
    if engine != "vllm":
        return
    if launch.flag("enable-auto-tool-choice") is not None and launch.flag("tool-call-parser") is None:
        yield _wrong("--enable-auto-tool-choice", None, "needs --tool-call-parser")
    step, length = (_count(launch.flag(name)) for name in ("max-num-batched-tokens", "max-model-len"))
    sequences, length = _count(launch.flag("max-num-seqs")), length or context_tokens
    if step is None:
        return
    value = str(step)
    whole = launch.flag("no-enable-chunked-prefill") is not None or launch.flag("enable-chunked-prefill") == "False"
    if whole and length is not None and step < length:
        yield _wrong(
            "--max-num-batched-tokens", value, f"is less than the {length:,} tokens of a prompt that is not chunked"
        )
    if sequences is not None and step < sequences:
        yield _wrong("--max-num-batched-tokens", value, f"is less than --max-num-seqs {sequences}")


def _wrong(flag: str, value: str | None, why: str) -> FlagFinding:
    return FlagFinding(name=flag, value=value, problem="wrong_value", release=None, instead=why)


def _unknown(flag: str, value: str, offered: Sequence[str]) -> FlagFinding:
    near = get_close_matches(value, offered, n=1, cutoff=0.6)
    return FlagFinding(name=flag, value=value, problem="unknown_value", release=None, instead=near[0] if near else None)


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _count(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"\d{1,12}", text) else None
