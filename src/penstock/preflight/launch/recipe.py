"""vLLM's published recipes.

A recipe says whether a model was verified on an accelerator, and which flags the model needs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.catalog.accelerator import Accelerator
from penstock.fleet.release import Release
from penstock.preflight.launch.flag_values import takes
from penstock.preflight.launch.setting import Setting
from penstock.preflight.rules.history import EngineFlags, History

SOURCE: Final = "https://github.com/vllm-project/recipes/tree/8959cf64189c"
_BUILT_IN: Final = {"nano_v3": "nemotron_v3"}
"""Parsers that recipes ship as a file, each with the name of the built-in parser in later releases."""
_FILES: Final = ("reasoning-parser-plugin", "tool-parser-plugin")
_SPREAD: Final = "enable-expert-parallel"
_FOR_BENCHMARKS: Final = "no-enable-prefix-caching"
"""Setting that recipes give for an accelerator to measure with synthetic prompts. "We recommend always adding this flag
if running with synthetic dataset" (recipes@8959cf64189c:Llama/Llama3.3-70B.md#L126). A recipe that turns prefix caching
off for the model itself, as for OCR, keeps the setting."""
_PARSE_TOOLS: Final = "tool-call-parser"
_CHOOSE_TOOLS: Final = "enable-auto-tool-choice"
_REASONS: Final = {
    "": "the model's recipe",
    "tools": "the model's parser for tool calls",
    "reasoning": "the model's parser for reasoning",
    "nvidia_": "the recipe's setting for NVIDIA",
    "hopper_": "the recipe's setting for Hopper",
    "blackwell_": "the recipe's setting for Blackwell",
    "amd_": "the recipe's setting for AMD",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The recipe of one model for one accelerator and release."""

    model: str
    status: str
    """`verified`, `unsupported` or `not listed` for this accelerator."""
    since: str | None
    """The first vLLM release that the recipe supports."""
    too_old: bool
    """Whether the checked release is older than the first release that the recipe supports."""
    flags: tuple[Setting, ...] = ()
    """Flags of the recipe, without the flags that the checked release does not have."""
    variables: tuple[Setting, ...] = ()
    spreads_experts: bool = False
    """Whether the recipe uses expert parallelism.

    A recipe with expert parallelism does not change the split, which the user chooses.
    """


def find_recipe(
    name: str,
    accelerator: Accelerator,
    version: Release,
    table: Mapping[str, Any],
    known: EngineFlags,
    choices: Mapping[str, History],
) -> Recipe | None:
    """Return the recipe of a repository, or None if no recipe is published.

    `known` lists the flags of each release, and `choices` lists the values of each flag.
    """
    entry = table.get(name)
    if entry is None:
        return None
    # Recipes name chips (h200), but the catalog names boards (h200_sxm).
    status = entry["hardware"].get(accelerator.id.partition("_")[0], "not listed")
    since = entry.get("since")
    return Recipe(
        model=name,
        status=str(status),
        since=since,
        too_old=since is not None and _older(version, since),
        flags=tuple(
            _supported_flags(
                [flag for flag in _flags(entry, accelerator) if flag.name != _SPREAD], version, known, choices
            )
        ),
        variables=tuple(
            variable
            for variable in {one.name: one for one in _variables(entry, accelerator)}.values()
            if not variable.name.startswith("VLLM_")
            or (known.variables is not None and known.variables.has(variable.name, version))
        ),
        spreads_experts=any(flag.name == _SPREAD for flag in _flags(entry, accelerator)),
    )


def _supported_flags(
    flags: Sequence[Setting], version: Release, known: EngineFlags, choices: Mapping[str, History]
) -> Iterator[Setting]:
    """Yield the flags whose name and value the release accepts.

    Of several settings of one flag the last stays: a recipe's setting for a chip replaces its general one. A parser
    that the recipe ships as a file is replaced by the built-in parser.
    """
    if version < known.flags.first:
        # The flags of older releases were not read, but all of them have this flag.
        yield from (flag for flag in flags if flag.name == "trust-remote-code")
        return
    built_in = [replace(flag, value=_BUILT_IN.get(flag.value or "", flag.value)) for flag in flags]
    accepted = [
        flag
        for flag in built_in
        if flag.name not in _FILES
        and known.has(flag.name, version)
        and (flag.value is None or takes(flag.name, flag.value, version, choices))
    ]
    kept = {flag.name: flag for flag in accepted}.values()
    named = {flag.name for flag in kept}
    # vLLM needs both flags: tool choice requires a parser, and a parser is not used without tool choice.
    yield from (flag for flag in kept if flag.name != _CHOOSE_TOOLS or _PARSE_TOOLS in named)
    if _PARSE_TOOLS in named and _CHOOSE_TOOLS not in named and known.has(_CHOOSE_TOOLS, version):
        yield Setting(name=_CHOOSE_TOOLS, value=None, why="without it the parser for tool calls is not used")


def cookbook_settings(
    name: str, version: Release, table: Mapping[str, Any], choices: Mapping[str, History]
) -> list[Setting]:
    """Return the flags that SGLang's cookbook lists for the model's family and that the release accepts."""
    own = name.rpartition("/")[2]
    family = max((begin for begin in table if own.startswith(begin)), key=len, default=None)
    entry = {} if family is None else table[family]
    found = []
    if entry.get("trust_remote_code"):
        found.append(Setting(name="trust-remote-code", value=None, why="the model brings code of its own (cookbook)"))
    for key, flag in (("tools", "tool-call-parser"), ("reasoning", "reasoning-parser")):
        if key in entry and takes(flag, entry[key], version, choices):
            found.append(Setting(name=flag, value=entry[key], why=_REASONS[key]))
    return found


def _older(version: Release, since: str) -> bool:
    return since[0].isdecimal() and version < Release(since)


def _generations(accelerator: Accelerator) -> tuple[str, ...]:
    """Return the prefixes of the recipe sections that apply to the accelerator.

    The most specific prefix comes first.
    """
    if accelerator.vendor == "amd":
        # "AMD" in recipes means MI300 and later. Most of these settings concern AITER, which no other chip supports.
        return ("amd_",) if str(accelerator.compute_target).startswith(("gfx94", "gfx95")) else ()
    if accelerator.vendor != "nvidia":
        return ()
    chips = {"Hopper": "hopper_", "Blackwell": "blackwell_", "Blackwell Ultra": "blackwell_"}
    found = chips.get(accelerator.architecture)
    return ("nvidia_",) if found is None else (found, "nvidia_")


def _flags(entry: Mapping[str, Any], accelerator: Accelerator) -> Iterator[Setting]:
    sections = [(prefix, f"{prefix}flags") for prefix in ("", *reversed(_generations(accelerator)))]
    sections += [("tools", "tools"), ("reasoning", "reasoning")]
    for prefix, key in sections:
        for text in entry.get(key, ()):
            name, _, value = str(text).partition(" ")
            if prefix and name == _FOR_BENCHMARKS:
                continue
            yield Setting(name=name, value=value or None, why=_REASONS[prefix])


def _variables(entry: Mapping[str, Any], accelerator: Accelerator) -> Iterator[Setting]:
    for prefix in ("", *reversed(_generations(accelerator))):
        for name, value in entry.get(f"{prefix}variables", {}).items():
            yield Setting(name=name, value=str(value), why=_REASONS[prefix])
