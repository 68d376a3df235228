"""Finds accelerators, models, weight formats and loads in a line, and replaces what it found by blanks."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final, NamedTuple

from penstock.catalog import accelerator_ids, find_model, load_accelerator, model_ids, unread_models

FORMATS: Final = {
    **{name: name for name in ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp6", "int8", "fp4", "mxfp4", "nvfp4")},
    **dict.fromkeys(("int4", "4-bit", "awq", "gptq", "q4_k_m", "q4"), "int4"),
    "bfloat16": "bf16",
    "mxfp8": "fp8",
    "8-bit": "int8",
    "w8a8": "int8",
}
_ENGINES: Final = {
    **{name: name for name in ("vllm-atom", "sglang-atom", "vllm", "sglang", "trtllm", "atom")},
    **dict.fromkeys(("trt-llm", "tensorrt-llm"), "trtllm"),
}
_SIZES: Final = {
    "7": "llama-2-7b",
    "8": "llama-3.1-8b",
    "13": "llama-2-13b",
    "32": "qwen3-32b",
    "70": "llama-3.1-70b",
    "72": "qwen2.5-72b",
    "120": "gpt-oss-120b",
    "180": "falcon-180b",
    "405": "llama-3.1-405b",
    "671": "deepseek-r1",
}
"""The model that stands for a bare size, such as `a 70B model`."""
_SHORT_MODELS: Final = {
    "llama-70b": "llama-3.1-70b",
    "llama-3-70b": "llama-3.1-70b",
    "llama-405b": "llama-3.1-405b",
    "llama-3-405b": "llama-3.1-405b",
    "deepseek-v3-671b": "deepseek-v3",
}
_NUMBERS: Final = {"a single": 1, "single": 1, "one": 1, "two": 2, "three": 3, "four": 4, "six": 6, "eight": 8}
_RACKS: Final = {"gb200_nvl72": "gb200", "gb300_nvl72": "gb300", "nvl72": "gb200", "vera_rubin_nvl144": "vera_rubin"}
_SHORT: Final = ("a100", "h100", "h200", "b200", "b300", "rtx4090", "mi250", "rtx_pro_6000", "a100_sxm")
_UNKNOWN: Final = r"MI\d{3}[A-Z]?|[LT]4|[ABHLV]\d{2,3}[A-Z]?|RTX[ -]?\w*\d{3,4}\w*|RX \d{4}(?: XTX?| GRE)?|TPU ?v?\d\w*"
_COUNT: Final = re.compile(
    rf"(?i)(?:(?<![\w.,$])(\d{{1,4}})\s*[x\u00d7]?\s?|\b({'|'.join(_NUMBERS)})\s+)(?:\d+ ?GB\s+)?"
    r"(?:(?:more|such|AMD|NVIDIA|Instinct|full|entire)\s+)*$"
)


class Mention(NamedTuple):
    """A name in a line, with the catalog's name if it is known."""

    start: int
    end: int
    ident: str | None
    text: str
    devices: int | None = None
    rack: bool = False


def _key(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower().replace("\u00d7", "x"))


def _choice(names: Mapping[str, str | None], joint: str) -> str:
    """Return a pattern for names, the longest first, whose parts may be joined by a blank, a hyphen or nothing."""
    return "|".join(re.sub(joint, r"[ _-]?", re.escape(name)) for name in sorted(names, key=len, reverse=True))


@cache
def _accelerators() -> tuple["re.Pattern[str]", dict[str, str]]:
    names = (
        {ident: ident for ident in accelerator_ids()} | {name: load_accelerator(name).id for name in _SHORT} | _RACKS
    )
    known = _choice(names, r"_|\\-")
    end = r"(?:s|\u2019s|'s)?(?![A-Za-z0-9])"
    pattern = re.compile(rf"(?i)(?<![A-Za-z0-9])(?:({known})(?:[ _-]?SXM[456]?)?|({_UNKNOWN})){end}")
    return pattern, {_key(name): ident for name, ident in names.items()}


def accelerators(line: str) -> list[Mention]:
    """Find the accelerators in a line, each with its stated number."""
    pattern, idents = _accelerators()
    found = []
    for match in pattern.finditer(line):
        before, after = _COUNT.search(line[: match.start()]), re.match(r":(\d{1,4})\b", line[match.end() :])
        stated = (before[1] or _NUMBERS[before[2].lower()]) if before else after[1] if after else None
        start = before.start() if before else match.start()
        end = match.end() + (after.end() if after and not before else 0)
        key = _key(match[1] or "")
        rack = "nvl72" in key or "nvl144" in key
        found.append(Mention(start, end, idents.get(key), match[0], int(stated or 0) or None, rack))
    return found


@cache
def variants_of(text: str) -> tuple[str, ...]:
    """List the accelerators that a bare name may mean: `h100` is SXM, PCIe or NVL."""
    bare = re.sub(r"['\u2019]?s$", "", text.lower())
    if bare in accelerator_ids() or not re.fullmatch(r"[a-z]+\d+", bare):
        return ()
    return tuple(ident for ident in accelerator_ids() if ident.startswith(f"{bare}_") or ident == f"g{bare}")


@cache
def _models() -> tuple["re.Pattern[str]", dict[str, str | None]]:
    names: dict[str, str | None] = {model.id: None for model in unread_models()}
    names |= {find_model(ident).repo.rpartition("/")[2].lower(): ident for ident in model_ids()}
    names |= {ident: ident for ident in model_ids()} | _SHORT_MODELS
    # `qwen3-32b-fp8` is a model, `qwen3-32b fp8` a model and a format.
    known = _choice(names, r"\\[- ](?!(?:nvfp4|mxfp4|fp8|bf16))").replace("x", "[x\u00d7]")
    size = r"(\d{1,3})B(?=[ -](?:-?parameter )?model|[ :,.]|$)"
    start = r"(?<![A-Za-z0-9.$])(?:[\w-]+/)?(?:meta[ -])?"
    pattern = re.compile(rf"(?i){start}(?:({known})(?:[ -]instruct)?|{size})(?![A-Za-z0-9])")
    return pattern, {_key(name): ident for name, ident in names.items()}


def models(line: str) -> list[Mention]:
    """Find the models in a line. A bare size such as `70B` stands for a usual model of that size."""
    pattern, idents = _models()
    return [
        Mention(*match.span(), idents.get(_key(match[1])) if match[1] else _SIZES.get(match[2]), match[0])
        for match in pattern.finditer(line)
    ]


_FORMAT: Final = re.compile(rf"(?i)(?<![A-Za-z0-9])({_choice(FORMATS, '$^')})(?![A-Za-z0-9])")
_LOAD: Final = {
    "lengths": r"\b(?:in\s+)?(\d[\d,]*k?)\s?/\s?(\d[\d,]*k?)\b(?! ?s\b)",
    "context": r"\b(\d[\d,]*k?)[ -](?:token(?:s of)? )?(?:context|prompt|input)|\bcontext(?: length)? of (\d[\d,]*k?)",
    "users": r"\b(?:batch(?:[ -]size)?(?: of)?|concurrency(?: of)?)[ -](\d[\d,]*)\b"
    r"|\b(\d[\d,]*|one|a single) (?:concurrent )?(?:users?|requests|streams|clients|sequences)\b",
    "engine": rf"(?<![A-Za-z0-9])({_choice(_ENGINES, '$^')})(?![A-Za-z0-9])",
    "undrafted": r"\bwithout (?:mtp|drafts?|drafting|speculati\w+)",
    "drafted": r"\b(?:mtp|eagle\d?|speculati\w+ decoding|drafting|drafts)\b",
}


def formats(line: str) -> Iterator[tuple[int, int, str]]:
    """Find the number formats in a line: start, end and name."""
    return ((*match.span(), FORMATS[match[1].lower()]) for match in _FORMAT.finditer(line))


def load_words(line: str) -> tuple[dict[str, object], str]:
    """Return the load and the engine that a line states, and the line with these words blanked."""
    found: dict[str, object] = {"disaggregated": True} if re.search(r"(?i)\bdisaggregated\b", line) else {}
    for name, pattern in _LOAD.items():
        match = re.search(pattern, line, re.IGNORECASE)
        if match is None:
            continue
        said = [group for group in match.groups() if group]
        if name == "lengths":
            found |= {"input_tokens": _tokens(said[0]), "output_tokens": _tokens(said[1])}
        elif name == "context":
            found.setdefault("input_tokens", _tokens(said[0]))
        elif name == "users":
            found["concurrency"] = _tokens(said[0]) if said[0][0].isdigit() else 1
        elif name == "engine":
            found["engine"] = _ENGINES[said[0].lower()]
        else:
            found.setdefault("drafted", name == "drafted")
        line = line[: match.start()] + " " * (match.end() - match.start()) + line[match.end() :]
    return found, line


def _tokens(text: str) -> int:
    plain = text.lower().replace(",", "")
    return max(1, int(plain[:-1]) * 1024 if plain.endswith("k") else int(plain))
