"""Draws a chart of a trace: arrivals over time, and the lengths of prompts and answers."""

from typing import Any, Final

from penstock.report.drawing.chart_files import draw_chart
from penstock.workload import TraceSummary
from penstock.workload.summary.histogram import CELLS_PER_OCTAVE

_WIDTH, _HEIGHT = 760, 140
_COLOURS: Final = {"prompts": "#17405f", "answers": "#d99a00"}


def trace_chart(summary: TraceSummary, suffix: str) -> str | bytes:
    """Draw the trace in the format that the file suffix names."""
    requests = summary.requests
    subtitle = f"{requests.requests:,} requests; {summary.source}"
    chart = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "title": {"text": summary.name, "subtitle": subtitle, "anchor": "start"},
        "vconcat": [_over_time(summary), _lengths(summary)],
        "config": {"view": {"stroke": None}},
    }
    return draw_chart(chart, suffix, summary.name)


def _over_time(summary: TraceSummary) -> dict[str, Any]:
    counts = summary.requests.arrivals
    rows = [
        {"s": place * counts.width_s, "to": (place + 1) * counts.width_s, "rate": count / counts.width_s}
        for place, count in enumerate(counts.requests)
    ]
    return {
        "width": _WIDTH,
        "height": _HEIGHT,
        "data": {"values": rows},
        "mark": {"type": "bar", "color": "#3f7cac"},
        "encoding": {
            "x": {
                "field": "s",
                "type": "quantitative",
                "title": "seconds since the first arrival",
                "scale": {"nice": False},
            },
            "x2": {"field": "to"},
            "y": {"field": "rate", "type": "quantitative", "title": "requests/s"},
            "y2": {"datum": 0},
        },
    }


def _lengths(summary: TraceSummary) -> dict[str, Any]:
    named = {"prompts": summary.requests.input_tokens, "answers": summary.requests.output_tokens}
    rows = [
        {
            "kind": kind,
            "tokens": 2 ** (cell / CELLS_PER_OCTAVE),
            "to": 2 ** ((cell + 1) / CELLS_PER_OCTAVE),
            "requests": count,
        }
        for kind, tokens in named.items()
        for cell, count in enumerate(tokens.by_length)
        if count
    ]
    scale = {"type": "log", "base": 2, "nice": False}
    return {
        "data": {"values": rows},
        "facet": {"row": {"field": "kind", "title": None, "sort": list(_COLOURS)}},
        "spec": {
            "width": _WIDTH,
            "height": _HEIGHT // 2,
            "mark": "bar",
            "encoding": {
                "x": {"field": "tokens", "type": "quantitative", "scale": scale, "title": "tokens, doubling"},
                "x2": {"field": "to"},
                "y": {"field": "requests", "type": "quantitative", "title": "requests"},
                "y2": {"datum": 0},
                "color": {
                    "field": "kind",
                    "legend": None,
                    "scale": {"domain": list(_COLOURS), "range": list(_COLOURS.values())},
                },
            },
        },
    }
