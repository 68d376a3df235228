"""Print sentences sampled from docstrings, help, errors and printed reports, for a reader who has not seen the code.

    python tools/sample_sentences.py --seed 7 --count 200

The reader marks each sentence that needs a second reading. Sentences come from four kinds of text in equal numbers;
formatted values are shown as <value>.
"""

import argparse
import ast
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from penstock.cli.root import app

REPOSITORY: Final = Path(__file__).resolve().parents[1]
SOURCES: Final = sorted((REPOSITORY / "src" / "penstock").rglob("*.py"))
MIN_WORDS: Final = 5
_END: Final = re.compile(r"(?<=[.!?:])\s+(?=[A-Z`<\"])|\n\s*\n|\n\s*[-•*]\s")
_WHOLE: Final = re.compile(r"[A-Z$\d](?:(?!==| ! ).){10,260}\.")
_BOX: Final = re.compile(r"[│╭╰─╮╯━┃┏┓┗┛┡┩├┤┬┴┼]+")


def sentences(text: str) -> Iterator[str]:
    """Split a text into sentences of at least five words."""
    for piece in _END.split(text):
        sentence = " ".join(piece.split())
        if len(re.findall(r"[A-Za-z]{2,}", sentence)) >= MIN_WORDS:
            yield sentence


def docstrings() -> Iterator[str]:
    """Yield the sentences of all docstrings, those of fields and constants included."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                yield from sentences(node.value.value)


def errors() -> Iterator[str]:
    """Yield the texts that follow `raise`, with formatted values replaced."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                yield from sentences(" ".join(_plain(argument) for argument in node.exc.args[:1]))


def _plain(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_plain(value) for value in node.values)
    return "<value>"


def help_texts() -> Iterator[str]:
    """Yield the sentences of every command's help and of its options."""
    commands: list[click.Command] = [app]
    while commands:
        command = commands.pop()
        if isinstance(command, click.Group):
            context = click.Context(command)
            commands += filter(None, (command.get_command(context, name) for name in command.list_commands(context)))
        yield from sentences((command.help or "").replace("\b", "").replace("\f", ""))
        for option in command.params:
            yield from sentences(getattr(option, "help", None) or "")


def reports(folder: Path) -> Iterator[str]:
    """Yield the sentences of the printed reports in a folder; rows and headings of tables are left out."""
    for path in sorted(folder.rglob("*.txt")):
        for block in re.split(r"\n\s*\n", path.read_text(encoding="utf-8")):
            lines = [_BOX.sub(" ", line).strip() for line in block.splitlines()]
            text = "\n".join(line for line in lines if not re.search(r"\S\s{2,}\S", line))
            yield from (sentence for sentence in sentences(text) if _WHOLE.fullmatch(sentence))


def main() -> None:
    """Print the sample, numbered."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument(
        "--reports", type=Path, default=REPOSITORY / "tests" / "golden", help="folder of printed reports"
    )
    arguments = parser.parse_args()
    random_source = random.Random(arguments.seed)  # noqa: S311 - a sample, not a secret
    kinds = [sorted(set(kind)) for kind in (docstrings(), help_texts(), errors(), reports(arguments.reports))]
    share = arguments.count // len(kinds)
    chosen = [text for kind in kinds for text in random_source.sample(kind, min(len(kind), share))]
    for number, text in enumerate(chosen, 1):
        print(f"{number}. {text}")


if __name__ == "__main__":
    main()
