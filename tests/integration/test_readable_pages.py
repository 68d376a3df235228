"""Pages can be read by people with weak eyes and by screen readers, on a desk and on a telephone.

The site is looked at where `make site` has built it; the page that needs no build is always looked at.
"""

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from browser import opened
from readable_pages import unreadable_parts

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build" / "site" / "html"
FLIP = ROOT / "docs" / "flip" / "index.html"
KINDS = (
    "index.html",
    "tutorials/1-rent-or-buy.html",
    "reference/fleet-file.html",
    "gateway/run.html",
    "evidence.html",
)
WIDTHS = (1280, 390)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Serve the built site on the loopback interface."""
    if not SITE.is_dir():
        pytest.skip("`make site` has not built the site")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("width", WIDTHS)
def test_flip_it_is_readable(width: int) -> None:
    with opened(FLIP, width=width) as page:
        assert unreadable_parts(page) == []


@pytest.mark.parametrize("width", WIDTHS)
def test_pages_of_the_site_are_readable_and_ask_no_other_host(address: str, width: int) -> None:
    # The browser complains of every request; those for the site are the ones that may be made.
    with opened(FLIP, width=width, may_complain_of=address) as page:
        found = {}
        for name in KINDS:
            page.goto(f"{address}/{name}")
            found[name] = unreadable_parts(page)
    assert {name: parts for name, parts in found.items() if parts} == {}


def test_defects_are_found(tmp_path: Path) -> None:
    page_file = tmp_path / "page.html"
    page_file.write_text(
        "<body style='background:#fff'><h1>Title</h1><h3 style='color:#111'>Skipped</h3><p style='color:#999'>pale</p>"
        "<svg width=9 height=9></svg><input><p style='color:#555'>dark enough</p>",
        encoding="utf-8",
    )
    with opened(page_file) as page:
        found = unreadable_parts(page)
    assert [line.split()[0] for line in found] == ["contrast", "heading", "no", "no"]
