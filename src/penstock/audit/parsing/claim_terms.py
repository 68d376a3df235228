"""Parses the terms of a claim: accelerators with counts, models, engines and dates. Error messages suggest a fix."""

import calendar
import re
from datetime import date
from typing import Final

from penstock.audit.claims.record_claims import ClaimedSpan
from penstock.catalog import accelerator_ids, find_model, load_accelerator, model_ids
from penstock.errors import UnknownName, UsageError

_MAX_DEVICES: Final = 4096
_MAX_CHARACTERS: Final = 250
_COUNTED: Final = re.compile(
    r"(?:(\d{1,4})(?:\s?[x\u00d7]\s?|\s+))?([a-z0-9][\w.\- ]{0,40}?)(?::(\d{1,4}))?", re.IGNORECASE
)
_QUARTER: Final = re.compile(r"(?:q([1-4])[ -]?(\d{4})|(\d{4})[ -]?q([1-4]))", re.IGNORECASE)
_HALF: Final = re.compile(r"(?:h([12])[ -]?(\d{4})|(\d{4})[ -]?h([12]))", re.IGNORECASE)
_VAGUE: Final = {"early": (1, 4), "mid": (5, 8), "late": (9, 12)}
_VENDORS: Final = {"amd", "nvidia", "intel", "google", "instinct", "geforce", "radeon", "tesla"}
_FORMS: Final = {"sxm4": "sxm", "sxm5": "sxm", "sxm6": "sxm"}
_MONTHS: Final = {name.lower(): number for number, name in enumerate(calendar.month_abbr) if name}
_YEARS: Final = (1990, 2100)
ENGINES: Final = ("vllm", "sglang", "trtllm", "atom", "vllm-atom", "sglang-atom")
"""Engines that have published rows, with the names that the rows use."""
_ENGINE_SPELLINGS: Final = {
    **{re.sub(r"[^a-z]", "", name): name for name in ENGINES},
    "trt": "trtllm",
    "tensorrt": "trtllm",
    "tensorrtllm": "trtllm",
    "nvidiatensorrtllm": "trtllm",
    "amdatom": "atom",
    "rocmatom": "atom",
    "atomvllm": "vllm-atom",
    "atomsglang": "sglang-atom",
}
"""Engines by spelling. A spelling has only lower-case letters, without spaces and punctuation."""


def _bounded_name(text: str) -> str:
    if len(text) > _MAX_CHARACTERS:
        raise UsageError(f"'{text[:40]}...' has {len(text):,} characters, too many for a name; shorten it")
    return text


def accelerator_name(text: str) -> str:
    """Return the id of an accelerator, written with or without its vendor: `AMD Instinct MI300X`, `H100 SXM5 80GB`."""
    named = _bounded_name(text)
    for spelled, gb in _spellings(named):
        try:
            part = load_accelerator(spelled)
        except UnknownName:
            continue
        if gb is None or part.memory.nominal_gb == gb:
            return part.id
    try:
        return load_accelerator(named).id
    except UnknownName as error:
        raise UsageError(str(error)) from None


def _spellings(text: str) -> list[tuple[str, int | None]]:
    """Return possible catalog names of an accelerator, without its vendor.

    The last element of the result is the accelerator's required memory in GB, if the text names a memory size.
    """
    words = [word for word in re.split(r"[\s_]+", text.strip().lower()) if word and word not in _VENDORS]
    plain = "_".join(_FORMS.get(word, word) for word in words)
    found: list[tuple[str, int | None]] = [(plain, None), (plain.replace("_", ""), None)]
    sizes = [word for word in words if re.fullmatch(r"\d{1,4}gb", word)]
    if len(sizes) == 1:
        bare = "_".join(_FORMS.get(word, word) for word in words if word != sizes[0])
        found.append((bare, int(sizes[0][:-2])))
    return [(spelled, gb) for spelled, gb in found if spelled]


def variants(text: str) -> tuple[str, ...]:
    """List the accelerators that the bare name of a generation may mean.

    For example, `h100` may mean SXM, PCIe or NVL.
    """
    bare = next((spelled for spelled, _ in _spellings(_bounded_name(text))), "")
    if not bare or bare in accelerator_ids():
        return ()
    return tuple(ident for ident in accelerator_ids() if ident.startswith(f"{bare}_") or ident == f"g{bare}")


def model_name(text: str) -> str:
    """Return the catalog name of a model. A path or a name that begins with `hf:` is returned unchanged."""
    if "/" in _bounded_name(text) or text.endswith(".json") or text.startswith("hf:"):
        return text
    for spelled in (text, "-".join(text.split())):
        try:
            return find_model(spelled).id
        except UnknownName:
            continue
    alike = [ident for ident in model_ids() if _letters(ident) == _letters(text)]
    if len(alike) == 1:
        return alike[0]
    try:
        return find_model("-".join(text.split())).id
    except UnknownName as error:
        raise UsageError(str(error)) from None


def _letters(name: str) -> str:
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    return plain.removeprefix("meta").removesuffix("instruct")


def engine_name(text: str) -> str:
    """Return the name of an engine, written as people write it: `vLLM`, `SGLang`, `TRT-LLM`, `TensorRT-LLM`."""
    name = _ENGINE_SPELLINGS.get(re.sub(r"[^a-z]", "", _bounded_name(text).lower()))
    if name is None:
        raise UsageError(
            f"there are no published measurements of the engine '{text[:30]}'; engines with measurements: "
            f"{', '.join(ENGINES)}"
        )
    return name


def counted_accelerator(text: str) -> tuple[str, int]:
    """Return the accelerator and the count in `mi300x`, `2x mi300x`, `2 mi300x` or `mi300x:2`."""
    found = _COUNTED.fullmatch(text.strip())
    if found is None or (found[1] and found[3]):
        raise UsageError(f"'{text[:40]}' names no devices; write mi300x, 2x mi300x or mi300x:2")
    if found[1] and _is_accelerator(text.strip()):
        return accelerator_name(text.strip()), 1
    devices = int(found[1] or found[3] or 1)
    if not 1 <= devices <= _MAX_DEVICES:
        raise UsageError(f"'{text[:40]}': the number of devices must be from 1 to {_MAX_DEVICES}")
    return accelerator_name(found[2].strip().replace(" ", "_")), devices


def _is_accelerator(text: str) -> bool:
    try:
        accelerator_name(text)
    except UsageError:
        return False
    return True


def span(text: str) -> ClaimedSpan:
    """Parse a date or period: 2024-10-10, 6 December 2023, 2024-10, Dec 2023, Q4 2023, H2 2024, mid-2025 or 2023."""
    shown = " ".join(text.split())
    months = _months(shown.lower())
    if months is not None:
        year, first, last = months
        if _YEARS[0] <= year <= _YEARS[1]:
            return ClaimedSpan(
                first=date(year, first, 1), last=date(year, last, calendar.monthrange(year, last)[1]), written=shown
            )
    day = _day(shown.lower())
    if day is None:
        raise UsageError(
            f"'{shown[:40]}' is not a date or period; write 2024-10-10, 2024-10, Q4 2023, H2 2024, mid-2025 or 2023"
        )
    return ClaimedSpan(first=day, last=day, written=shown)


def _day(text: str) -> date | None:
    named = re.fullmatch(r"(\d{1,2})\.? ([a-z]{3})[a-z]*\.? (\d{4})", text)
    try:
        if named is not None and named[2] in _MONTHS:
            return date(int(named[3]), _MONTHS[named[2]], int(named[1]))
        return date.fromisoformat(text) if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text) else None
    except ValueError:
        return None


def _months(text: str) -> tuple[int, int, int] | None:
    """Return the year, first month and last month of a period.

    Return None if the text is not a period of whole months.
    """
    quarter, half = _QUARTER.fullmatch(text), _HALF.fullmatch(text)
    if quarter is not None:
        number, year = int(quarter[1] or quarter[4]), int(quarter[2] or quarter[3])
        return year, 3 * number - 2, 3 * number
    if half is not None:
        number, year = int(half[1] or half[4]), int(half[2] or half[3])
        return year, 6 * number - 5, 6 * number
    vague = re.fullmatch(r"(early|mid|late)[ -](\d{4})", text)
    if vague is not None:
        return int(vague[2]), *_VAGUE[vague[1]]
    named = re.fullmatch(r"([a-z]{3})[a-z]*\.? (\d{4})", text)
    if named is not None and named[1] in _MONTHS:
        return int(named[2]), _MONTHS[named[1]], _MONTHS[named[1]]
    month = re.fullmatch(r"(\d{4})-(0[1-9]|1[0-2])", text)
    if month is not None:
        return int(month[1]), int(month[2]), int(month[2])
    year_alone = re.fullmatch(r"\d{4}", text)
    return None if year_alone is None else (int(text), 1, 12)
