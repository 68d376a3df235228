"""Renders a guide as one self-contained HTML page: a map to point at, and sliders for the rents that matter."""

import json
from base64 import b64encode
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final

from penstock import __version__
from penstock.guide.guide_result import GuideCell, GuideFleet, GuideResult
from penstock.report.drawing.html_template import as_html, render_template, template_text
from penstock.report.drawing.label_colours import LABEL_COLOURS
from penstock.report.guide.guide_maps import map_title, maps_of
from penstock.report.guide.guide_sentences import (
    ONE_ACCELERATOR,
    acquisition_sentence,
    binding_sentences,
    conclusion,
    crossing_sentence,
    doubt_sentence,
    format_sentence,
    is_close,
    left_out_groups,
    one_vendor_sentence,
    only_text,
    price_sentences,
    tie_fraction,
    tie_sentences,
)
from penstock.report.guide.names import VENDOR_NAMES, short_name, tokens_text
from penstock.report.guide.where_sentences import none_sentences, where_sentences
from penstock.units import count_text, format_digits

SCRIPT: Final = template_text("guide.js")
"""The only script of the page. The content security policy allows no other script."""
_OTHER: Final = "#17405f"
_SLIDERS: Final = 2
_PRICES: Final = 12


def guide_html(result: GuideResult) -> str:
    """Write the whole guide as HTML."""
    numbers = {id(cell): number for number, cell in enumerate(result.cells)}
    vendors = sorted({fleet.vendor for cell in result.cells for fleet in cell.fleets})
    return render_template(
        "guide.html.j2",
        title=result.name,
        question=f"Cost of {count_text(result.horizon_years, 'year')} from {result.start}, with spares and people; "
        f"fleets are enough in {result.confidence:.0%} of cases.",
        css=as_html(template_text("plan.css")),
        script_source=as_html(f"script-src 'sha256-{b64encode(sha256(SCRIPT.encode()).digest()).decode()}'"),
        script=as_html(SCRIPT),
        data=as_html(_data(result)),
        conclusion=conclusion(result),
        doubts=[
            *where_sentences(result),
            *none_sentences(result),
            *(
                sentence
                for sentence in (
                    format_sentence(result),
                    acquisition_sentence(result),
                    one_vendor_sentence(result),
                    doubt_sentence(result, "stripes"),
                )
                if sentence
            ),
        ],
        vendors=[
            {"name": VENDOR_NAMES.get(vendor, vendor), "colour": LABEL_COLOURS.get(vendor, _OTHER)}
            for vendor in vendors
        ],
        decides=list(binding_sentences(result)),
        ties=list(tie_sentences(result)),
        maps=[_map(cells, result, numbers) for _, cells in maps_of(result)],
        knobs=_knobs(result),
        turns=[*(crossing_sentence(entry, result) for entry in result.crossings), *price_sentences(result, _PRICES)]
        or ["The same vendor is cheapest in every workload of the grid."],
        prices=[f"{short_name(name)}: {source}" for name, source in result.prices.items()],
        left_out=list(left_out_groups(result)),
        limits=ONE_ACCELERATOR,
        version=__version__,
    )


def _map(cells: Sequence[GuideCell], result: GuideResult, numbers: Mapping[int, int]) -> dict[str, object]:
    by_key = {(cell.shape.input_tokens, cell.requests_per_s): numbers[id(cell)] for cell in cells}
    prompts = sorted({cell.shape.input_tokens for cell in cells})
    return {
        "title": map_title(cells[0].shape, result),
        "loads": [format_digits(load) for load in result.grid.loads],
        "rows": [
            {"prompt": tokens_text(prompt), "cells": [by_key[prompt, load] for load in result.grid.loads]}
            for prompt in prompts
        ],
    }


def _knobs(result: GuideResult) -> list[dict[str, object]]:
    """Return the sliders: for each vendor, the rent of the accelerator that is in most fleets of the map."""
    rents = _rents(result)
    counts = Counter(fleet.accelerator for cell in result.cells for fleet in cell.fleets[:2])
    vendor = {fleet.accelerator: fleet.vendor for cell in result.cells for fleet in cell.fleets}
    order = [name for name, _ in counts.most_common() if name in rents]
    first = {vendor[name]: name for name in reversed(order)}
    chosen = list(dict.fromkeys([*first.values(), *order]))[:_SLIDERS]
    return [
        {
            "accelerator": name,
            "name": f"{short_name(name)}, rent",
            "value": f"{rents[name]:.4g}",
            "low": f"{rents[name] / 2:.2f}",
            "high": f"{rents[name] * 2:.2f}",
        }
        for name in chosen
    ]


def _rents(result: GuideResult) -> dict[str, float]:
    return {
        fleet.accelerator: fleet.rent_usd_per_device_hour
        for cell in result.cells
        for fleet in cell.fleets
        if fleet.rent_usd_per_device_hour is not None
    }


def _data(result: GuideResult) -> str:
    """Return what the script reads, as JSON that cannot end its element."""
    content = {
        "rents": _rents(result),
        "colours": LABEL_COLOURS,
        "only": only_text(result),
        "cells": [_cell(cell) for cell in result.cells],
    }
    return json.dumps(content, ensure_ascii=True).replace("</", "<\\/")


def _cell(cell: GuideCell) -> dict[str, object]:
    shape = cell.shape
    prompt = f"{shape.input_tokens:,} in, {shape.output_tokens:,} out"
    return {
        "title": f"{shape.model}, {prompt}, {format_digits(cell.requests_per_s)} requests/s, {shape.slo}",
        "close": is_close(cell),
        "decides": cell.binding or "",
        "tie": cell.near_tie is not None,
        "why": cell.why_none,
        "fleets": [_fleet(fleet) for fleet in cell.fleets],
        "notes": list(_notes(cell)),
    }


def _notes(cell: GuideCell) -> Sequence[str]:
    if cell.winner is None:
        return []
    notes = []
    if cell.probability is not None and cell.low_usd is not None and cell.high_usd is not None:
        notes.append(
            f"Cheapest in {cell.probability:.0%} of draws; P10-P90 of its cost ${cell.low_usd:,.0f} to "
            f"${cell.high_usd:,.0f}; ${format_digits(cell.winner.usd_per_mtok)} per million tokens."
        )
    if cell.binding is not None:
        notes.append(f"What decides: {cell.binding}.")
    if cell.near_tie is not None:
        notes.append(f"{short_name(cell.near_tie.accelerator)} would cost {tie_fraction(cell):.1%} more.")
    if cell.flip_rent_usd is not None:
        notes.append(f"It stops winning above ${cell.flip_rent_usd:,.2f} a device-hour.")
    return notes


def _fleet(fleet: GuideFleet) -> dict[str, object]:
    runs = " and ".join(
        f"{count_text(pool.devices, 'device')} ({pool.spare_units * pool.unit_devices} spare), in units of "
        f"{pool.unit_devices}; {count_text(pool.replicas, 'replica')} of {pool.way} {pool.weights} on {pool.engine}, "
        f"speed {pool.tier}"
        for pool in fleet.pools
    )
    return {
        "vendor": fleet.vendor,
        "vendor_name": VENDOR_NAMES.get(fleet.vendor, fleet.vendor),
        "accelerator": fleet.accelerator,
        "short": short_name(fleet.accelerator),
        "name": short_name(fleet.accelerator),
        "usd": fleet.cost_usd,
        "slope": fleet.usd_per_rent,
        "runs": runs,
    }
