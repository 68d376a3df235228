"""Pages of the documentation: links lead somewhere, and commands of tutorials are run."""

import re
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest
from generated_reference import SOURCES, VARIABLES
from reference_pages import REPORTS, menu
from walk_tutorials import PAGES, blocks, main, shown_lines

REPOSITORY = Path(__file__).resolve().parents[2]
DOCS = REPOSITORY / "docs"
EVERY = sorted([REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *DOCS.rglob("*.md")])
GENERATED = ("help.md", "reference/")
MAX_WORDS = 25_000
MAX_MEDIAN_WORDS = 20
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


def manual() -> dict[str, str]:
    """Pages that people write, without code, marks and generated tables; reports and generated pages are left out."""
    names = [name for section, pages in menu().items() if section not in (REPORTS, "Project") for name in pages]
    ignored = re.compile(r"```.*?```|<!-- table: \w+ -->.*?<!-- end -->|<!--.*?-->", re.DOTALL)
    return {
        name: ignored.sub("", (DOCS / name).read_text(encoding="utf-8"))
        for name in names
        if not name.startswith(GENERATED) or name == "reference/glossary.md"
    }


def test_the_manual_is_short() -> None:
    words = {name: len(re.findall(r"[A-Za-z]\S*", text)) for name, text in manual().items()}
    assert sum(words.values()) <= MAX_WORDS, sorted(words.items(), key=lambda item: -item[1])[:8]


def test_sentences_of_the_manual_are_short() -> None:
    lengths = []
    for name, text in manual().items():
        prose = "\n".join(line for line in text.splitlines() if not re.match(r"\s*[|#]", line))
        pieces = re.split(r"(?<=[.!?:])\s+(?=[A-Z`*\[\d(])|\n\s*\n|\n\s*[-*] ", prose)
        own = [len(piece.split()) for piece in pieces if len(piece.split()) > 2]
        assert len(own) < 10 or median(own) <= MAX_MEDIAN_WORDS, name
        lengths += own
    assert median(lengths) <= MAX_MEDIAN_WORDS


def test_every_environment_variable_that_is_read_is_on_its_page() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.py"))
    read = set(re.findall(r'environ\.(?:get|setdefault)\(\s*"(\w+)"', text)) | set(
        re.findall(r'"(PENSTOCK_\w+)"', text)
    )
    assert read == set(VARIABLES)


@pytest.mark.parametrize("page", ["plan-file.md", "fleet-file.md"])
def test_every_key_of_a_file_has_a_meaning(page: str) -> None:
    text = (DOCS / "reference" / page).read_text(encoding="utf-8")
    keys = re.findall(r"^\| `(\w+)` \| (.*?)\*.*\* \|$", text, re.MULTILINE)
    assert len(keys) > 30
    assert [key for key, meaning in keys if not meaning.strip()] == []


@pytest.mark.parametrize("name", PAGES)
def test_no_printed_line_looks_like_a_command(name: str) -> None:
    found = [
        command for _, block in blocks((REPOSITORY / name).read_text(encoding="utf-8")) for command in block.commands
    ]
    assert {command.split()[0] for command in found if command} <= {"penstock", "printf", "ls", "cat", "import"}


def test_one_scenario_has_the_same_dollars_everywhere() -> None:
    told = (REPOSITORY / "tests" / "golden" / "plan_chat-and-agent.txt").read_text(encoding="utf-8")
    cost = re.search(r"(?:AMD|NVIDIA|A mix)[^$]*(\$[\d.]+[kM]) all in", " ".join(told.split()))
    paid = re.search(r"opex (\$[\d.]+[kM])", told)
    assert cost
    assert paid
    for page in (DOCS / "tutorials" / "1-h200-or-mi355x.md", DOCS / "tutorials" / "3-page-for-finance.md"):
        assert f"{cost[1]} all in" in " ".join(page.read_text(encoding="utf-8").split()), page.name
    readme = " ".join((REPOSITORY / "README.md").read_text(encoding="utf-8").split())
    assert f"{paid[1]} paid in a year, {cost[1]} in today's money" in readme
    notebook = (REPOSITORY / "examples" / "notebooks" / "first-look.ipynb").read_text(encoding="utf-8")
    assert f"{cost[1]} all in" in notebook.replace("\\n", " ")


def test_readme_shows_the_command_of_its_picture() -> None:
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    typed = re.search(r"^\$ (penstock predict (?:.*\\\n)*.*)$", readme, re.MULTILINE)
    picture = (DOCS / "images" / "predict.svg").read_text(encoding="utf-8").replace("&#160;", " ")
    drawn = " ".join(re.findall(r">([^<]*)</text>", picture))
    assert typed
    words = typed[1].replace("\\\n", "").split()
    assert " ".join(words) in " ".join(drawn.replace("\\", "").split())


def test_shown_lines_are_cut_where_the_page_says() -> None:
    output = "\n".join(str(number) for number in range(1, 10))
    assert shown_lines(output, {"head": "2"}) == "1\n2\n..."
    assert shown_lines(output, {"lines": "3-4"}) == "3\n4"
    assert shown_lines(output, {}) == output


@pytest.mark.parametrize(("shown", "exit_code"), [("hello", 0), ("goodbye", 1)])
def test_a_page_that_shows_another_output_is_refused(
    shown: str, exit_code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"<!-- run -->\n```console\n$ echo \\\n    hello\n{shown}\n```\n", encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["walk_tutorials.py", "--check", str(page)])
    assert main() == exit_code
