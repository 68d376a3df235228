"""Builds the documentation as a site, without network: `make site`.

Pages are staged from `docs/`, because links to files outside of it (README, examples) would lead nowhere. The result is
checked: every link of a page leads to a file of the site, and no page loads anything from another host.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from reference_pages import DOCS, MENU, REPOSITORY

BUILD: Final = REPOSITORY / "build" / "site"
STAGED: Final = BUILD / "docs"
OUTPUT: Final = BUILD / "html"
_STYLE: Final = """\
.md-nav__link--active, .md-nav__link--active:is(:focus, :hover) { color: #303f9f !important; }
.md-typeset td:first-child code { white-space: nowrap; }
@media (max-width: 600px) {
  .md-typeset table:not([class]) :is(td, th) { min-width: 0; padding: .5em; }
}
"""
"""The theme's colour of the current page has a contrast of 3.75 on its ground; this one has 8. Names in the first
column of a table are not broken; a wide table scrolls. On a phone, narrow margins leave the width to the text."""
_LINK: Final = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")


def stage() -> None:
    """Copy the pages, with links that stay inside of the site."""
    shutil.rmtree(BUILD, ignore_errors=True)
    shutil.copytree(DOCS, STAGED)
    for page in STAGED.rglob("*.md"):
        original = DOCS / page.relative_to(STAGED)
        text = original.read_text(encoding="utf-8")
        page.write_text(_LINK.sub(partial(_inside, original), text), encoding="utf-8")
    (STAGED / "site.css").write_text(_STYLE, encoding="utf-8")
    (BUILD / "zensical.toml").write_text(_configuration(), encoding="utf-8")


def _inside(page: Path, found: re.Match[str]) -> str:
    text, link = found[1], found[2]
    target = (page.parent / link.partition("#")[0]).resolve()
    if re.match(r"[a-z]+:|#", link) or target.is_relative_to(DOCS):
        return found[0]
    return f"{text} (`{target.relative_to(REPOSITORY)}` in the repository)"


def _configuration() -> str:
    entries = [{section: [{_title(name): name} for name in names]} for section, names in MENU.items()]
    shown = ",\n  ".join(_toml(entry) for entry in entries)
    return f"""[project]
site_name = "Penstock"
site_description = "Which AMD or NVIDIA GPUs serve an LLM, how fast, for how much, and will it start?"
docs_dir = "docs"
site_dir = "html"
use_directory_urls = false
extra_css = ["site.css"]
nav = [
  {shown}
]

[project.theme]
font = false
features = ["content.code.copy", "navigation.footer", "navigation.sections", "navigation.top", "search.highlight"]

[project.markdown_extensions]
admonition = {{}}
attr_list = {{}}
toc.permalink = true
pymdownx.superfences = {{}}
pymdownx.highlight = {{}}
"""


def _toml(entry: object) -> str:
    """Write a menu entry as an inline table of TOML."""
    if isinstance(entry, dict):
        return "{ " + ", ".join(f"{json.dumps(name)} = {_toml(value)}" for name, value in entry.items()) + " }"
    if isinstance(entry, list):
        return "[" + ", ".join(_toml(one) for one in entry) + "]"
    return json.dumps(entry)


def _title(name: str) -> str:
    found = re.search(r"^# (.+)$", (DOCS / name).read_text(encoding="utf-8"), re.MULTILINE)
    return found[1].replace("`", "") if found else name


class _References(HTMLParser):
    """Collects what a page links to, and what it loads."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.pictures_without_text = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "a" and values.get("href"):
            self.links.append(values["href"] or "")
        if tag in {"script", "img", "iframe", "source"} and values.get("src"):
            self.loaded.append(values["src"] or "")
        if tag == "link" and values.get("rel") not in {"canonical", "next", "prev"} and values.get("href"):
            self.loaded.append(values["href"] or "")
        if tag == "img" and not values.get("alt"):
            self.pictures_without_text += 1


def complaints() -> Iterator[str]:
    """Find broken links, loads from other hosts and pictures without text in the built site."""
    for page in sorted(OUTPUT.rglob("*.html")):
        references = _References()
        references.feed(page.read_text(encoding="utf-8"))
        name = page.relative_to(OUTPUT)
        yield from (f"{name}: loads {url}" for url in references.loaded if re.match(r"(https?:)?//", url))
        for link in (*references.links, *references.loaded):
            path = unquote(link.partition("#")[0].partition("?")[0])
            if not path or re.match(r"[a-z]+:|//", path) or name.name == "404.html":
                continue
            target = OUTPUT / path.lstrip("/") if path.startswith("/") else page.parent / path
            if not target.exists():
                yield f"{name}: {link} leads nowhere"
        if references.pictures_without_text:
            yield f"{name}: {references.pictures_without_text} pictures without text"


def main() -> int:
    """Build and check."""
    builder = sys.argv[1] if len(sys.argv) > 1 else "zensical"
    stage()
    subprocess.run([builder, "build"], cwd=BUILD, check=True)  # noqa: S603 - the builder that the Makefile names
    found = list(complaints())
    for line in found:
        print(line, file=sys.stderr)
    pages = len(list(OUTPUT.rglob("*.html")))
    print(f"{pages} pages in {OUTPUT.relative_to(REPOSITORY)}, {len(found)} complaints")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
