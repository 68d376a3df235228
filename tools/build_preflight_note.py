"""Writes the figures of docs/preflight.md: rules by severity, and the confusion table of the labelled world."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from labelled_world import confusion_table, missed_list, outcomes, rule_counts

NOTE = Path(__file__).resolve().parent.parent / "docs" / "preflight.md"


def main() -> None:
    """Rewrite what stands between the markers."""
    text = NOTE.read_text(encoding="utf-8")
    found = outcomes()
    for name, written in (("counts", rule_counts()), ("world", confusion_table(found)), ("missed", missed_list(found))):
        before, _, rest = text.partition(f"<!-- {name} -->\n")
        after = rest.partition(f"<!-- /{name} -->")[2]
        text = f"{before}<!-- {name} -->\n{written}\n<!-- /{name} -->{after}"
    NOTE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
