"""Prints the section of CHANGELOG.md for the version of pyproject.toml. A section without a date ends in an error.

python tools/release_notes.py > notes.md
"""

import re
import sys
import tomllib
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[1]
_HEADING: Final = re.compile(r"^## \[(?P<version>[^\]]+)\](?: - (?P<date>\S+))?$", re.MULTILINE)


def notes(changelog: str, version: str) -> str:
    """Return the text below the heading of a version. Raise ValueError if it is missing, undated or empty."""
    headings = list(_HEADING.finditer(changelog))
    found = next((one for one in headings if one["version"] == version), None)
    if found is None:
        raise ValueError(f"CHANGELOG.md has no section [{version}]")
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", found["date"] or ""):
        raise ValueError(f"section [{version}] of CHANGELOG.md has no date, as in '## [{version}] - 2026-11-30'")
    end = next((one.start() for one in headings if one.start() > found.end()), len(changelog))
    text = changelog[found.end() : end].strip()
    if not text:
        raise ValueError(f"section [{version}] of CHANGELOG.md is empty")
    return text + "\n"


def main() -> int:
    """Print the section, or say what it lacks."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    try:
        print(notes((REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8"), project["version"]), end="")
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
