"""Writes a chart as SVG, PNG, or a self-contained HTML page that needs no scripts and no network."""

from importlib.util import find_spec
from typing import Any, Final

from penstock.errors import MissingExtra, UsageError

_DRAWN_BY: Final = ("altair", "vl_convert")
_SUFFIXES: Final = (".html", ".svg", ".png")


def check_drawable(suffix: str) -> None:
    """Raise an error if the chart's format is unknown or the report extra is not installed.

    Callers check this before they compute anything.
    """
    if suffix not in _SUFFIXES:
        raise UsageError(f"'{suffix}' is not a chart format; use .html, .svg or .png")
    if any(find_spec(name) is None for name in _DRAWN_BY):
        raise MissingExtra("charts need the report extra: pip install 'penstock[report]'")


def draw_chart(chart: dict[str, Any], suffix: str, title: str) -> str | bytes:
    """Render a Vega-Lite chart in the format that the file suffix gives."""
    try:
        import vl_convert  # noqa: PLC0415 - optional extra
    except ImportError:
        raise MissingExtra("charts need an extra: pip install 'penstock[report]'") from None
    if suffix == ".png":
        return bytes(vl_convert.vegalite_to_png(chart, scale=2))
    if suffix not in {".svg", ".html"}:
        raise UsageError(f"'{suffix}' is not a chart format; use .html, .svg or .png")
    drawing: str = vl_convert.vegalite_to_svg(chart)
    if suffix == ".svg":
        return drawing
    from penstock.report.drawing.html_template import as_html, render_template  # noqa: PLC0415 - optional extra

    return render_template("chart.html.j2", title=title, drawing=as_html(drawing))
