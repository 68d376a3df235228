"""Writes the sentences of a guide: the conclusion, the lines where the answer turns, and what is uncertain."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from penstock.guide.guide_result import Binding, Crossing, GuideCell, GuideFleet, GuidePool, GuideResult
from penstock.report.guide.guide_maps import place_text
from penstock.report.guide.names import VENDOR_NAMES, short_name, tokens_text
from penstock.report.guide.where_sentences import places_text
from penstock.units import count_text, format_digits

ONE_ACCELERATOR: Final = (
    "Each fleet has one accelerator. A fleet of several may be cheaper, most often where one has too few instances on "
    "sale; `penstock plan` compares these too."
)
SURE: Final = 0.9
"""Share of draws from which on a winner is not marked as close."""
_MEANING: Final[dict[Binding, str]] = {
    "instance size": "the other vendor's instances are larger than the load needs, and so are their spares",
    "price": "the other vendor needs no more devices, but costs more",
    "software": "at equal shares of the hardware limit, the other vendor would be cheaper",
}
_LIMITED: Final = "it limits the other vendor's replicas"


def is_close(cell: GuideCell) -> bool:
    """Return whether another vendor is cheapest in at least a tenth of the draws."""
    return cell.probability is not None and cell.rival is not None and cell.probability < SURE


def conclusion(result: GuideResult) -> str:
    """Say in one sentence how many workloads each vendor serves at the lowest cost."""
    served = result.served
    if not served:
        return f"No fleet serves any of {count_text(len(result.cells), 'workload')}."
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
        parts.append(f"no fleet serves {none}")
    return f"{', '.join(parts)}."


def _part(vendor: str, cells: Sequence[GuideCell], total: int | None) -> str:
    name = VENDOR_NAMES.get(vendor, vendor)
    return (
        f"{name} is cheapest in {len(cells)} of {count_text(total, 'workload')}" if total else f"{name} in {len(cells)}"
    )


def crossing_sentence(crossing: Crossing, result: GuideResult) -> str:
    """Say where the answer turns."""
    below, above = short_name(crossing.below), short_name(crossing.above)
    place = place_text(crossing.shape, result)
    if crossing.axis == "load":
        ends = f"{below} up to {format_digits(crossing.low)}/s, {above} from {format_digits(crossing.high)}/s"
        return f"{place}{tokens_text(crossing.input_tokens)} prompts: {ends}"
    ends = f"{below} up to prompts of {crossing.low:,.0f} tokens, {above} from {crossing.high:,.0f}"
    return f"{place}{format_digits(crossing.requests_per_s)} requests/s: {ends}"


def price_sentences(result: GuideResult, most: int) -> Iterator[str]:
    """Yield the smallest changes of a rent that turn a cell, one per accelerator."""
    found: dict[str, tuple[float, str]] = {}
    for cell in result.served:
        for fleet, turn in ((cell.winner, cell.flip_rent_usd), (cell.rival, cell.rival_flip_rent_usd)):
            if fleet is None or turn is None or fleet.rent_usd_per_device_hour is None:
                continue
            change = abs(turn / fleet.rent_usd_per_device_hour - 1)
            if fleet.accelerator not in found or change < found[fleet.accelerator][0]:
                found[fleet.accelerator] = change, _price_sentence(cell, fleet, turn, result)
    yield from (text for _, text in sorted(found.values())[:most])


def _price_sentence(cell: GuideCell, fleet: GuideFleet, turn: float, result: GuideResult) -> str:
    now = fleet.rent_usd_per_device_hour or 0.0
    side, verb = ("above", "stops winning") if fleet is cell.winner else ("below", "wins")
    known = "estimated at" if fleet.accelerator in result.estimated_rents else "now"
    rents = f"${turn:,.2f} a device-hour ({known} ${now:,.2f})"
    return f"{short_name(fleet.accelerator)} {verb} {side} {rents}: {where(cell, result)}"


def where(cell: GuideCell, result: GuideResult) -> str:
    """Return the place of a cell in the maps."""
    prompt, load = tokens_text(cell.shape.input_tokens), format_digits(cell.requests_per_s)
    return f"{place_text(cell.shape, result)}{prompt} prompts, {load}/s"


def tie_sentences(result: GuideResult) -> Iterator[str]:
    """Yield the accelerators that are hardly dearer than a winner of their vendor, each with its workloads."""
    found: dict[tuple[str, str, str], list[GuideCell]] = {}
    for cell in result.served:
        if cell.winner is not None and cell.near_tie is not None:
            key = place_text(cell.shape, result), cell.near_tie.accelerator, cell.winner.accelerator
            found.setdefault(key, []).append(cell)
    for (place, other, own), cells in found.items():
        more = [tie_fraction(cell) for cell in cells]
        span = f"{min(more):.1%}" if len(cells) == 1 else f"{min(more):.1%} to {max(more):.1%}"
        yield f"{short_name(other)} costs {span} more than {short_name(own)}: {place}{places_text(cells)}"


def tie_fraction(cell: GuideCell) -> float:
    """Return how much more the near tie of a cell costs than its winner; 0 without a near tie."""
    if cell.winner is None or cell.near_tie is None:
        return 0.0
    return cell.near_tie.cost_usd / cell.winner.cost_usd - 1


def left_out_groups(result: GuideResult) -> Iterator[str]:
    """Yield the reasons why accelerators were left out, each behind its accelerators."""
    by_reason: dict[str, list[str]] = {}
    for entry in result.left_out:
        by_reason.setdefault(entry.why, []).append(short_name(entry.what))
    yield from (f"{', '.join(names)}: {why}." for why, names in by_reason.items())


def only_text(result: GuideResult) -> str:
    """Return the mark of a cell that one vendor serves; empty if only one vendor was compared."""
    return "only" if len(result.vendors) > 1 else ""


def doubt_sentence(result: GuideResult, mark: str) -> str:
    """Say how many winners are close, and which speeds are not measured; empty if no workload has a winner.

    `mark` is what tells close winners from the others.
    """
    served = result.served
    if not served:
        return ""
    close = [cell for cell in served if is_close(cell)]
    unmeasured = [
        [short_name(pool.accelerator) for pool in cell.winner.pools if pool.tier in {"transferred", "roofline"}]
        for cell in served
        if cell.winner is not None
    ]
    share = f"{len(close)} of {count_text(len(served), 'workload')}"
    text = f"Close ({mark}): in {share} the winner is cheapest in under {SURE:.0%} of the draws."
    if not close:
        text = f"Every winner is cheapest in at least {SURE:.0%} of the draws."
    names = sorted({name for own in unmeasured for name in own})
    if names:
        winners = count_text(sum(map(bool, unmeasured)), "winner")
        text += f" Speeds of {', '.join(names)} are transferred from other setups in {winners}."
    return text


def binding_sentences(result: GuideResult) -> Iterator[str]:
    """Yield what decides between the vendors: its name, the number of cells and its meaning."""
    counts = Counter(cell.binding for cell in result.served if cell.binding is not None)
    for name, count in counts.most_common():
        yield f"{name} ({count}): {_MEANING.get(name, _LIMITED)}"


def format_sentence(result: GuideResult) -> str:
    """State the weight formats that the compared fleets run; empty if no workload has a fleet."""
    found = sorted({(pool.weights, short_name(pool.accelerator)) for pool in _pools(result)})
    by_format = {weights: [name for own, name in found if own == weights] for weights, _ in found}
    texts = [f"{weights} on {', '.join(names)}" for weights, names in by_format.items()]
    return f"Weights: {'; '.join(texts)}." if texts else ""


def acquisition_sentence(result: GuideResult) -> str:
    """State how the compared fleets are acquired; empty if no workload has a fleet."""
    words = {"rent": "by the hour", "buy": "bought"}
    ways = {(short_name(pool.accelerator), pool.acquired) for pool in _pools(result)}
    found = [(name, words.get(how, f"for {how}")) for name, how in sorted(ways)]
    return f"Acquired as in a plan: {', '.join(f'{name} {how}' for name, how in found)}." if found else ""


def _pools(result: GuideResult) -> Iterator[GuidePool]:
    yield from (pool for cell in result.served for fleet in cell.fleets for pool in fleet.pools)


def one_vendor_sentence(result: GuideResult) -> str:
    """Say that vendors were not compared; empty if they were."""
    if len(result.vendors) == 1:
        return f"Only accelerators of {VENDOR_NAMES.get(result.vendors[0], result.vendors[0])} were compared."
    if result.served and all(cell.rival is None for cell in result.served):
        return "No workload can be served by two vendors."
    return ""
