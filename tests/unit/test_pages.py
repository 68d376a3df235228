"""Pages of the documentation: links lead somewhere, and commands of tutorials are run."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
from reference_pages import menu
from walk_tutorials import PAGES, blocks, shown_lines

REPOSITORY = Path(__file__).resolve().parents[2]
DOCS = REPOSITORY / "docs"
EVERY = sorted([REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *DOCS.rglob("*.md")])
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def headings(path: Path) -> set[str]:
    """Anchors of a page: its own, and those that GitHub makes of headings."""
    text = path.read_text(encoding="utf-8")
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return set(re.findall(r'(?:id|name)="([^"]+)"', text)) | {
        re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles
    }


@pytest.mark.parametrize("page", EVERY, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_no_link_of_a_page_is_broken(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    broken = []
    for link in _LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in headings(target)):
            broken.append(link)
    assert broken == []


def test_the_menu_names_pages_that_exist_and_every_new_page() -> None:
    named = {name for names in menu().values() for name in names}
    assert [name for name in sorted(named) if not (DOCS / name).is_file()] == []
    written = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md") if "decisions" not in path.parts}
    assert {name for name in written - named if not name.endswith(".template.md")} == set()


@pytest.mark.parametrize("name", [name for name in PAGES if name != "README.md"])
def test_every_command_of_a_tutorial_is_marked_to_be_run(name: str) -> None:
    text = (REPOSITORY / name).read_text(encoding="utf-8")
    found = [block for _, block in blocks(text)]
    fences = re.findall(r"^```(console|python)$", text, re.MULTILINE)
    assert len(fences) == sum(block.file is None for block in found)
    assert all(block.commands for block in found if block.file is None)


def test_headings_of_tutorials_are_in_order() -> None:
    for name in PAGES:
        text = re.sub(r"```.*?```", "", (REPOSITORY / name).read_text(encoding="utf-8"), flags=re.DOTALL)
        levels = [len(marks) for marks in re.findall(r"^(#+) ", text, re.MULTILINE)]
        assert levels[0] == 1
        assert all(after <= before + 1 for before, after in pairwise(levels))


def test_shown_lines_are_cut_where_the_page_says() -> None:
    output = "\n".join(str(number) for number in range(1, 10))
    assert shown_lines(output, {"head": "2"}) == "1\n2\n..."
    assert shown_lines(output, {"lines": "3-4"}) == "3\n4"
    assert shown_lines(output, {}) == output
