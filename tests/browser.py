"""A real browser for tests: Playwright on the system's Chromium, or a reason to skip."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page


@contextmanager
def opened(path: Path, *, width: int = 1200, may_complain_of: str | None = None) -> Iterator["Page"]:
    """Open a file in Chromium; whatever the page complains about, or tries to fetch, fails the test."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        if os.environ.get("PENSTOCK_REQUIRE_BROWSER"):
            pytest.fail("Chromium must be installed when PENSTOCK_REQUIRE_BROWSER is set")
        pytest.skip("no Chromium on this machine")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        # A sandbox needs a user who is not root, which CI may be.
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": 900})
        complaints: list[str] = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("request", lambda request: complaints.append(request.url) if request.url != page.url else None)
        page.goto(path.as_uri())
        try:
            yield page
        finally:
            browser.close()
        unexpected = [entry for entry in complaints if not entry.startswith(path.as_uri())]
        if may_complain_of is not None:
            assert any(may_complain_of in entry for entry in unexpected)
            unexpected = [entry for entry in unexpected if may_complain_of not in entry]
        assert unexpected == []
