"""Writes preflight/data/cited_lines.json: hashes of the lines of source code that rules cite.

Needs clones with the cited commits, and wheels of releases that no clone has:
`python tools/build_cited_lines.py vllm=CLONE sglang=CLONE atom=CLONE vllm@v0.32.0=WHEEL`. With the hashes,
`penstock preflight learn` says whether a citation still stands in a release.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

from penstock.preflight.packs.cited_lines import line_marks
from penstock.preflight.packs.release_source import WheelSource
from penstock.preflight.rules._rule_files import load_rules

WRITTEN = Path(__file__).resolve().parent.parent / "src/penstock/preflight/data/cited_lines.json"
LINES = re.compile(r"([\w-]+)@([\w.-]+):([\w./-]+)#L(\d+)(?:-L(\d+))?")


def cited(clone: str, commit: str, path: str, first: int, last: int) -> list[str]:
    """Return the hashes of the cited lines; none if the clone has no such file."""
    command = ["git", "-C", clone, "show", f"{commit}:{path}"]
    text = subprocess.run(command, capture_output=True, text=True, check=False).stdout  # noqa: S603 - no shell
    return line_marks("\n".join(text.splitlines()[first - 1 : last]))


def main() -> None:
    """Write the file."""
    clones = dict(word.split("=", 1) for word in sys.argv[1:])
    found, missing = {}, []
    for reference in sorted({source.text for rule in load_rules() for source in rule.sources}):
        match = LINES.fullmatch(reference)
        if match is None or match[1] not in clones:
            continue
        first, last = int(match[4]), int(match[5] or match[4])
        wheel = clones.get(f"{match[1]}@{match[2]}")
        marks = (
            line_marks("\n".join(WheelSource(Path(wheel)).read(match[3]).splitlines()[first - 1 : last]))
            if wheel
            else cited(clones[match[1]], match[2], match[3], first, last)
        )
        if marks:
            found[reference] = marks
        else:
            missing.append(reference)
    WRITTEN.write_text(json.dumps(found, indent=0) + "\n", encoding="utf-8")
    sys.stdout.write(f"{len(found)} citations; not found: {', '.join(missing) or 'none'}\n")


if __name__ == "__main__":
    main()
