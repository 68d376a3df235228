"""Runs every command of the tutorials as a new user would: in order, in an empty directory, with the built wheel.

    python tools/walk_tutorials.py --bin build/wheel-venv/bin            # every command; exit codes and seconds
    python tools/walk_tutorials.py --bin build/wheel-venv/bin --cheap    # without commands marked slow
    python tools/walk_tutorials.py --bin build/wheel-venv/bin --check    # and fail where a page shows another output
    python tools/walk_tutorials.py --bin build/wheel-venv/bin --write    # and put the real output into the pages

A page marks its blocks with a comment in the line above. `<!-- file: NAME -->` writes a block as a file. `<!-- run -->`
runs a block, with the options `exit N` (expected exit code), `head N` or `lines A-B` (shown lines), `slow`, `extra`
(needs an optional package).
"""

import argparse
import difflib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[1]
PAGES: Final = (
    "README.md",
    "docs/start.md",
    *(f"docs/tutorials/{path.name}" for path in sorted((REPOSITORY / "docs" / "tutorials").glob("*.md"))),
)
MAX_COMMAND_S: Final = 900
_BLOCK: Final = re.compile(
    r"<!-- (?P<kind>run|file):? ?(?P<words>[^>]*?) ?-->\n```(?P<language>\w+)\n(?P<body>.*?)\n```", re.DOTALL
)


@dataclass(frozen=True, kw_only=True)
class Block:
    """A marked block of a page: a file to write, or commands to run."""

    file: str | None
    options: Mapping[str, str]
    language: str
    body: str

    @property
    def commands(self) -> list[str]:
        """Return the commands of the block. A command that ends in a backslash continues in the next line."""
        if self.language == "python":
            return [self.body]
        lines = re.sub(r"\\\n(?:> )?\s*", "", self.body).splitlines()
        return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one command did."""

    command: str
    exit_code: int
    expected: int
    seconds: float
    output: str
    error: str

    @property
    def good(self) -> bool:
        """Return whether the command exited as the page says."""
        return self.exit_code == self.expected


def blocks(text: str) -> Iterator[tuple[re.Match[str], Block]]:
    """Find the marked blocks of a page."""
    for found in _BLOCK.finditer(text):
        words = found["words"]
        is_file = found["kind"] == "file"
        options = {} if is_file else dict(re.findall(r"(exit|head|lines|slow|extra) ?([\d-]*)", words))
        yield (
            found,
            Block(
                file=words.strip() if is_file else None,
                options=options,
                language=found["language"],
                body=found["body"],
            ),
        )


def run(command: str, block: Block, directory: Path, environment: Mapping[str, str]) -> Outcome:
    """Run one command."""
    is_python = block.language == "python"
    words = ["python", "-c", command] if is_python else ["bash", "-c", command]
    begin_s = time.monotonic()
    done = subprocess.run(  # noqa: S603 - the commands of our own pages
        words, cwd=directory, env=dict(environment), capture_output=True, text=True, timeout=MAX_COMMAND_S, check=False
    )
    return Outcome(
        command=command,
        exit_code=done.returncode,
        expected=int(block.options.get("exit", "0")),
        seconds=time.monotonic() - begin_s,
        output="\n".join(line.rstrip() for line in done.stdout.rstrip().splitlines()),
        error=done.stderr,
    )


def shown_lines(output: str, options: Mapping[str, str]) -> str:
    """Cut an output to the lines that a page shows. `...` stands for the rest."""
    lines = output.splitlines()
    if any(line.startswith("$ ") for line in lines):
        raise ValueError("a line of output begins with '$ ', so a page would show it as a command")
    if "head" in options and len(lines) > int(options["head"]):
        lines = [*lines[: int(options["head"])], "..."]
    if "lines" in options:
        first, last = (int(number) for number in options["lines"].split("-"))
        lines = lines[first - 1 : last]
    return "\n".join(lines)


def walk(page: Path, environment: Mapping[str, str], *, cheap: bool) -> tuple[list[Outcome], str]:
    """Run the blocks of a page in an empty directory. Return the outcomes and the page with the real output."""
    text = page.read_text(encoding="utf-8")
    renewed, outcomes = text, []
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        known = {**environment, "HOME": str(directory / "home")}
        for found, block in blocks(text):
            if block.file is not None:
                (directory / block.file).write_text(block.body + "\n", encoding="utf-8")
                continue
            if (cheap and "slow" in block.options) or (
                "extra" in block.options and "PENSTOCK_EXTRAS" not in os.environ
            ):
                continue
            done = [run(command, block, directory, known) for command in block.commands]
            outcomes += done
            if block.language == "console":
                renewed = renewed.replace(found[0], _renewed(found, done, block.options), 1)
    return outcomes, renewed


def _renewed(found: re.Match[str], done: list[Outcome], options: Mapping[str, str]) -> str:
    typed = re.findall(r"^\$ (?:.*\\\n)*.*$", found["body"], re.MULTILINE)
    pieces = [
        command + ("\n" + shown if (shown := shown_lines(one.output, options)) else "")
        for command, one in zip(typed, done, strict=True)
    ]
    opening = found[0].partition("```")[0]
    return f"{opening}```{found['language']}\n" + "\n".join(pieces) + "\n```"


def print_difference(name: str, shown: str, real: str) -> None:
    """Print which lines of a page differ from the real output."""
    lines = difflib.unified_diff(shown.splitlines(), real.splitlines(), f"{name}, shown", "real", n=0, lineterm="")
    print("\n".join(lines), file=sys.stderr)


def main() -> int:
    """Walk the pages and print a table of their commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, default=Path(sys.executable).parent, help="where `penstock` is installed")
    parser.add_argument("--cheap", action="store_true", help="skip commands marked slow")
    parser.add_argument("--check", action="store_true", help="fail if a page shows another output")
    parser.add_argument("--write", action="store_true", help="put the real output into the pages")
    parser.add_argument("pages", nargs="*", default=PAGES)
    given = parser.parse_args()
    environment = {
        **{name: value for name, value in os.environ.items() if name in {"PYTHONPATH", "LANG", "OPENBLAS_NUM_THREADS"}},
        "PATH": f"{given.bin.absolute()}:/usr/bin:/bin",
        "COLUMNS": "80",
        "NO_COLOR": "1",
        "TERM": "dumb",
    }
    bad = 0
    for name in given.pages:
        page = REPOSITORY / name
        outcomes, renewed = walk(page, environment, cheap=given.cheap)
        total_s = sum(one.seconds for one in outcomes)
        print(f"{name}: {len(outcomes)} commands, {total_s:.0f} s", flush=True)
        for one in outcomes:
            first = one.command.splitlines()[0][:90]
            print(f"  {'ok ' if one.good else 'BAD'} exit {one.exit_code} {one.seconds:6.1f} s  {first}", flush=True)
            if not one.good:
                bad += 1
                print(one.output[-500:], one.error[-500:], file=sys.stderr)
        shown = page.read_text(encoding="utf-8")
        if given.check and renewed != shown:
            bad += 1
            print(f"  BAD {name} does not show the real output; run `make walk`", flush=True)
            print_difference(name, shown, renewed)
        if given.write:
            page.write_text(renewed, encoding="utf-8")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
