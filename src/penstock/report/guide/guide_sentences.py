"""Writes the sentences of a guide: the conclusion, the lines where the answer turns, and what is uncertain."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from penstock.guide.guide_result import Crossing, GuideCell, GuideFleet, GuideResult
from penstock.units import count_text, format_digits

VENDOR_NAMES: Final = {"amd": "AMD", "nvidia": "NVIDIA", "intel": "Intel", "google": "Google"}
SURE: Final = 0.9
"""Share of draws from which on a winner is not marked as close."""
_KILO: Final = 1024
_MAX_LISTED: Final = 8
_FORM_FACTORS: Final = ("_sxm", "_server")


def short_name(accelerator: str) -> str:
    """Return an accelerator's id without its form factor."""
    for ending in _FORM_FACTORS:
        accelerator = accelerator.removesuffix(ending)
    return accelerator


def tokens_text(tokens: float) -> str:
    """Format tokens as users write them: 512, 4k for 4,096, 3.5k for 3,500."""
    if tokens >= _KILO and tokens % _KILO == 0:
        return f"{tokens / _KILO:.0f}k"
    return f"{tokens / 1000:.3g}k" if tokens >= _KILO else f"{tokens:.0f}"


def is_close(cell: GuideCell) -> bool:
    """Return whether another vendor is cheapest in at least a tenth of the draws."""
    return cell.probability is not None and cell.rival is not None and cell.probability < SURE


def conclusion(result: GuideResult) -> str:
    """Say in one sentence which vendor is cheapest where."""
    served = result.served
    if not served:
        return f"No accelerator keeps the SLO in any of {count_text(len(result.cells), 'workload')}."
    by_vendor: dict[str, list[GuideCell]] = {}
    for cell in served:
        if cell.winner is not None:
            by_vendor.setdefault(cell.winner.vendor, []).append(cell)
    parts = [
        _part(vendor, cells, len(result.cells) if number == 0 else None)
        for number, (vendor, cells) in enumerate(sorted(by_vendor.items(), key=lambda item: -len(item[1])))
    ]
    none = len(result.cells) - len(served)
    if none:
        parts.append(f"no accelerator keeps the SLO in {none}")
    return f"{'; '.join(parts)}."


def _part(vendor: str, cells: Sequence[GuideCell], total: int | None) -> str:
    name = VENDOR_NAMES.get(vendor, vendor)
    names = Counter(short_name(cell.winner.accelerator) for cell in cells if cell.winner is not None)
    most = " and ".join(entry for entry, _ in names.most_common(2))
    loads, prompts = {cell.requests_per_s for cell in cells}, {cell.shape.input_tokens for cell in cells}
    where = f"at {_list_values(loads, format_digits)} requests/s, prompts of {_list_values(prompts, tokens_text)}"
    lead = (
        f"{name} is cheapest in {len(cells)} of {count_text(total, 'workload')}" if total else f"{name} in {len(cells)}"
    )
    return f"{lead} ({most}; {where})"


def _list_values(values: Collection[float], text: Callable[[float], str]) -> str:
    """List values. Between them the answer may differ, so a range is written only with the number of its values."""
    shown = [text(value) for value in sorted(values)]
    if len(shown) > _MAX_LISTED:
        return f"{len(shown)} values from {shown[0]} to {shown[-1]}"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def crossing_sentence(crossing: Crossing) -> str:
    """Say where the answer turns."""
    below, above = short_name(crossing.below), short_name(crossing.above)
    if crossing.axis == "load":
        at = f"{crossing.shape.model}, {tokens_text(crossing.input_tokens)} prompts"
        span = f"between {format_digits(crossing.low)} and {format_digits(crossing.high)} requests/s"
        return f"{at}: {below} below, {above} above a load {span}"
    at = f"{crossing.shape.model}, {format_digits(crossing.requests_per_s)} requests/s"
    if crossing.low == crossing.high:
        return f"{at}: {below} below, {above} above prompts of about {tokens_text(crossing.low)} tokens (interpolated)"
    span = f"between {tokens_text(crossing.low)} and {tokens_text(crossing.high)} tokens"
    return f"{at}: {below} below, {above} above prompts {span}"


def price_sentences(result: GuideResult, most: int) -> Iterator[str]:
    """Yield the smallest changes of a rent that turn a cell, one per accelerator."""
    found: dict[str, tuple[float, str]] = {}
    for cell in result.served:
        for fleet, turn in ((cell.winner, cell.flip_rent_usd), (cell.rival, cell.rival_flip_rent_usd)):
            if fleet is None or turn is None or fleet.rent_usd_per_device_hour is None:
                continue
            change = abs(turn / fleet.rent_usd_per_device_hour - 1)
            if fleet.accelerator not in found or change < found[fleet.accelerator][0]:
                found[fleet.accelerator] = change, _price_sentence(cell, fleet, turn)
    yield from (text for _, text in sorted(found.values())[:most])


def _price_sentence(cell: GuideCell, fleet: GuideFleet, turn: float) -> str:
    now = fleet.rent_usd_per_device_hour or 0.0
    side, verb = ("above", "stops winning") if fleet is cell.winner else ("below", "wins")
    where = (
        f"{cell.shape.model}, {tokens_text(cell.shape.input_tokens)} prompts, {format_digits(cell.requests_per_s)}/s"
    )
    return f"{short_name(fleet.accelerator)} {verb} {side} ${turn:,.2f} a device-hour (now ${now:,.2f}): {where}"


def left_out_sentences(result: GuideResult) -> Iterator[str]:
    """Yield the reasons why accelerators were left out, each with its accelerators."""
    by_reason: dict[str, list[str]] = {}
    for entry in result.left_out:
        by_reason.setdefault(entry.why, []).append(short_name(entry.what))
    yield from (f"Left out: {', '.join(names)}: {why}." for why, names in by_reason.items())


def only_text(result: GuideResult) -> str:
    """Return the mark of a cell that one vendor serves; empty if only one vendor was compared."""
    return "only" if len(result.vendors) > 1 else ""


def doubt_sentence(result: GuideResult) -> str:
    """Say how many winners are close, and which speeds are not measured; empty if no workload has a winner."""
    served = result.served
    if not served:
        return ""
    close = [cell for cell in served if is_close(cell)]
    tiers = Counter(
        (pool.tier, short_name(pool.accelerator))
        for cell in served
        if cell.winner is not None
        for pool in cell.winner.pools
        if pool.tier in {"transferred", "roofline"}
    )
    text = f"Close (~): in {len(close)} of {len(served)} the winner is cheapest in under {SURE:.0%} of the draws."
    if tiers:
        names = sorted({name for _, name in tiers})
        winners = count_text(sum(tiers.values()), "winner")
        text += f" Speeds of {', '.join(names)} are transferred from other setups in {winners}."
    return text


def binding_sentence(result: GuideResult) -> str:
    """Say what decides how many cells; empty if no workload has a winner."""
    counts = Counter(cell.binding for cell in result.served if cell.binding is not None)
    if len(result.vendors) == 1:
        return f"Only accelerators of {VENDOR_NAMES.get(result.vendors[0], result.vendors[0])} were compared."
    if not counts:
        return "No workload can be served by two vendors." if result.served else ""
    listed = ", ".join(f"{name} {count}" for name, count in counts.most_common())
    return f"What decides, by number of workloads: {listed}."
