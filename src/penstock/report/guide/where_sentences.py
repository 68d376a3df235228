"""Writes which workloads of a guide go to which vendor and why, and why a workload has no fleet."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from penstock.guide.guide_result import GuideCell, GuideResult
from penstock.report.guide.guide_maps import maps_of, place_text
from penstock.report.guide.names import VENDOR_NAMES, short_name, tokens_text
from penstock.units import count_text, format_digits

_MAX_LISTED: Final = 8


def where_sentences(result: GuideResult) -> Iterator[str]:
    """Yield, for each map, the vendors with their workloads and what decides; nothing for maps without a fleet."""
    maps = list(maps_of(result))
    for shape, cells in maps:
        title = place_text(shape, result).removesuffix(", ")
        served = _by_vendor(cells)
        if not served:
            continue
        (most, others), *fewer = sorted(served.items(), key=lambda item: -len(item[1]))
        whole = len(others) == len(cells)
        rest = "in every workload" if whole else "in the others" if fewer else places_text(others)
        said = [f"{_vendor(vendor, own)} for {places_text(own)}{_why(own)}" for vendor, own in fewer]
        yield (
            (f"{title}: " if title else "") + "; ".join([*said, f"{_vendor(most, others)} {rest}{_why(others)}"]) + "."
        )


def none_sentences(result: GuideResult) -> Iterator[str]:
    """Yield the reasons why workloads have no fleet, each with its workloads."""
    by_reason: dict[str, list[GuideCell]] = {}
    for cell in result.cells:
        if cell.winner is None:
            by_reason.setdefault(cell.why_none, []).append(cell)
    for why, cells in by_reason.items():
        yield f"No fleet (-) for {count_text(len(cells), 'workload')} ({places_text(cells)}): {why}."


def list_values(values: Collection[float], text: Callable[[float], str]) -> str:
    """List values. Between them the answer may differ, so a range is written only with the number of its values."""
    shown = [text(value) for value in sorted(values)]
    if len(shown) > _MAX_LISTED:
        return f"{len(shown)} values from {shown[0]} to {shown[-1]}"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _by_vendor(cells: Sequence[GuideCell]) -> dict[str, list[GuideCell]]:
    found: dict[str, list[GuideCell]] = {}
    for cell in cells:
        if cell.winner is not None:
            found.setdefault(cell.winner.vendor, []).append(cell)
    return found


def _vendor(vendor: str, cells: Sequence[GuideCell]) -> str:
    names = Counter(short_name(cell.winner.accelerator) for cell in cells if cell.winner is not None)
    return f"{VENDOR_NAMES.get(vendor, vendor)} ({', '.join(name for name, _ in names.most_common())})"


def places_text(cells: Sequence[GuideCell]) -> str:
    """Say the prompts and loads of cells. Prompts with the same loads are named together."""
    loads_of: dict[int, set[float]] = {}
    for cell in cells:
        loads_of.setdefault(cell.shape.input_tokens, set()).add(cell.requests_per_s)
    prompts_at: dict[tuple[float, ...], list[int]] = {}
    for prompt, loads in sorted(loads_of.items()):
        prompts_at.setdefault(tuple(sorted(loads)), []).append(prompt)
    return ", ".join(
        f"{list_values(prompts, tokens_text)} prompts at {list_values(loads, format_digits)}/s"
        for loads, prompts in prompts_at.items()
    )


def _why(cells: Sequence[GuideCell]) -> str:
    """Return what decides most of the cells; empty if no other vendor has a fleet."""
    decides = Counter(cell.binding for cell in cells if cell.binding is not None).most_common()
    if not decides:
        return ""
    named = [f"{name}" if len(decides) == 1 else f"{name} ({number})" for name, number in decides]
    return f", decided by {', '.join(named)}"
