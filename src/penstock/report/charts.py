"""How is a chart kept? As SVG, PNG, or a page that holds the drawing itself: no script, no network."""

from html import escape
from pathlib import Path
from typing import Any

from penstock.errors import UsageError

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>body{{margin:2rem auto;max-width:72rem;padding:0 1rem;font-family:system-ui,sans-serif}}
svg{{width:100%;height:auto}}</style></head><body>
{drawing}
</body></html>
"""


def save_chart(chart: dict[str, Any], path: Path) -> None:
    """Write a Vega-Lite chart in the format its file name asks for."""
    try:
        import vl_convert  # noqa: PLC0415 - an extra
    except ImportError:
        raise UsageError("charts need an extra; run: pip install 'penstock[report]'") from None
    if path.suffix == ".png":
        path.write_bytes(vl_convert.vegalite_to_png(chart, scale=2))
    elif path.suffix == ".svg":
        path.write_text(vl_convert.vegalite_to_svg(chart), encoding="utf-8")
    elif path.suffix == ".html":
        page = _PAGE.format(title=escape(path.stem), drawing=vl_convert.vegalite_to_svg(chart))
        path.write_text(page, encoding="utf-8")
    else:
        raise UsageError(f"'{path.name}': a chart is written as .html, .svg or .png")
