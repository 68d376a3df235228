"""Plain English: no sentence has a habit that makes it hard to read, and no function is named by a participle."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import penstock

ROOT: Final = Path(penstock.__file__).parent
REPOSITORY: Final = ROOT.parents[1]
DOCUMENTS: Final = ("CONTRIBUTING.md", "CHANGELOG.md", "docs/architecture.md", "docs/reference/glossary.md")
HABITS: Final = {
    r"of late": "recently",
    r"anew": "again",
    r"hangs? on": "depends on",
    r"(?:is|are|was|were|be|being) had": "is bought, rented, available",
    r"so (?:many|much)": "the number or the amount",
    r"nobody": "no data, no request, no user",
    r"beside": "next to, relative to, besides",
    r"(?:for|of|to|by|with|from|says|tells|and|or|than|when|where) who": "name the noun: requests that, users who",
    r"who (?:was|were|is|are) (?:shed|sent|asked|served|lost)": "shed requests, lost requests",
    r"what counts": "name it",
    r"(?:eight|nine) (?:of|in) ten": "P10-P90, or P90",
    r"the middle one": "the median",
    r"(?:speed )?of light": "roofline, or hardware limit",
    r"one's": "name the subject",
    r"is told|are told|was told": "receives, is informed",
    r"its own words|sign of life": "its output; no answer",
    r"cannot be meant|beyond reason": "say the allowed range",
}
"""Habits that VOCABULARY lists, as patterns, and what to write instead."""
IRREGULAR: Final = frozenset(
    [
        "said",
        "seen",
        "told",
        "had",
        "drawn",
        "kept",
        "held",
        "taken",
        "given",
        "meant",
        "made",
        "gone",
        "left",
        "shown",
        "known",
        "sold",
        "bought",
        "sent",
        "lost",
    ]
)
NOT_PARTICIPLES: Final = frozenset({"embed", "feed", "need", "proceed", "seed", "shed", "speed"})
ALLOWED: Final = {
    "compiled": "a mark on a function; also the steps that were compiled",
    "exported": "a mark on a function",
    "interpreted": "the Python function behind a mark",
    "sent": "an event of the C interface: a request was sent",
    "reported": "an event of the C interface: an endpoint reported",
    "finished": "an event of the C interface: an answer ended",
    "lost": "an event of the C interface: a request was lost",
    "corrected": "a value, as sorted() is",
    "scaled": "a value, as sorted() is",
    "widened": "a value, as sorted() is",
    "measured": "a yes or no",
    "settled": "a yes or no; the first row that is not finished",
    "sustained": "the rate a pool sustains",
    "attained": "the share of requests that meet the SLO",
    "bounded": "a bound on that share",
    "sketched": "that rate from fewer requests",
}
"""Participles that say what a function returns, or name an event or a mark."""


def sentences(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the comments and strings of a module, or the lines of a document, with their lines."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from enumerate(text.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, " ".join(node.value.split())


def test_no_sentence_has_a_habit_that_makes_it_hard_to_read() -> None:
    habit = re.compile(rf"\b(?:{'|'.join(HABITS)})\b", re.IGNORECASE)
    documents = [
        *(REPOSITORY / name for name in DOCUMENTS if (REPOSITORY / name).exists()),
        *sorted((REPOSITORY / "docs").rglob("*.md")),
    ]
    found = [
        f"{path.relative_to(REPOSITORY)}:{line}: {match[0]}"
        for path in [*sorted(ROOT.rglob("*.py")), *documents]
        for line, text in sentences(path)
        for match in habit.finditer(text)
    ]
    assert found == []


def test_no_function_is_named_by_a_participle() -> None:
    named = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}"
        for path in sorted(ROOT.rglob("*.py"))
        for node in public_functions(ast.parse(path.read_text(encoding="utf-8")))
        if is_participle(node.name.strip("_")) and node.name not in ALLOWED
    ]
    assert named == []


def public_functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the functions and methods of a module: no properties, and no functions inside functions."""
    for node in tree.body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        for member in members:
            if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
                decorators = {ast.unparse(decorator) for decorator in member.decorator_list}
                if not decorators & {"property", "cached_property"}:
                    yield member


def is_participle(name: str) -> bool:
    return name in IRREGULAR or (name.endswith("ed") and "_" not in name and name not in NOT_PARTICIPLES)


def test_limits_are_called_min_and_max() -> None:
    limit = re.compile(r"\b_?(?:MOST|LEAST)_(?!REQUEST\b)[A-Z_]+\b")
    assert [str(path) for path in sorted(ROOT.rglob("*.py")) if limit.search(path.read_text(encoding="utf-8"))] == []
