"""Writes the figures of preflight's pages: rules by severity, and how often the labelled world contradicts them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from labelled_world import NOTES, confusion_table, missed_list, outcomes, rule_counts, score_sentence


def main() -> None:
    """Rewrite what stands between the markers."""
    found = outcomes()
    written = {
        "counts": rule_counts(),
        "world": confusion_table(found),
        "missed": missed_list(found),
        "score": score_sentence(found),
    }
    for name, path in NOTES.items():
        text = path.read_text(encoding="utf-8")
        before, _, rest = text.partition(f"<!-- {name} -->\n")
        after = rest.partition(f"<!-- /{name} -->")[2]
        path.write_text(f"{before}<!-- {name} -->\n{written[name]}\n<!-- /{name} -->{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
