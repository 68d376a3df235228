"""Pages of the documentation: links lead somewhere, and commands of tutorials are run."""

import re
import subprocess
import tomllib
from itertools import pairwise
from pathlib import Path
from shutil import which

import pytest
from generated_reference import SOURCES, VARIABLES
from reference_pages import MENU
from walk_tutorials import PAGES, blocks, main, shown_lines

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
    named = {name for names in MENU.values() for name in names}
    assert named == {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}


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


def test_pages_have_at_most_their_words() -> None:
    listed = subprocess.run(
        [which("git") or "git", "ls-files", "*.md"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    pages = [path for name in listed.stdout.split() if (path := REPOSITORY / name).is_file()]
    words = {str(path): len(path.read_text(encoding="utf-8").split()) for path in pages or EVERY}
    budget = tomllib.loads((REPOSITORY / "budgets.toml").read_text(encoding="utf-8"))["surface"]["words_of_docs"]
    assert sum(words.values()) <= budget, sorted(words.items(), key=lambda item: -item[1])[:8]


def test_every_environment_variable_that_is_read_is_on_its_page() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.py"))
    read = set(re.findall(r'environ\.(?:get|setdefault)\(\s*"(\w+)"', text)) | set(
        re.findall(r'"(PENSTOCK_\w+)"', text)
    )
    assert read == set(VARIABLES)


@pytest.mark.parametrize("page", ["plan-file.md", "fleet-file.md"])
def test_every_key_of_a_file_has_a_meaning(page: str) -> None:
    text = (DOCS / "reference" / page).read_text(encoding="utf-8")
    keys = re.findall(r"^- `(\w+)` (.*?)\*.*\*$", text, re.MULTILINE)
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
    tutorial = (DOCS / "tutorials" / "1-rent-or-buy.md").read_text(encoding="utf-8")
    assert f"{cost[1]} all in" in " ".join(tutorial.split())
    readme = " ".join((REPOSITORY / "README.md").read_text(encoding="utf-8").split())
    assert f"{paid[1]} paid in a year, {cost[1]} in today's money" in readme
    notebook = (REPOSITORY / "examples" / "notebooks" / "first-look.ipynb").read_text(encoding="utf-8")
    assert f"{cost[1]} all in" in notebook.replace("\\n", " ")


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
