"""Writes the figures of preflight: rules by severity, and how often the labelled world contradicts them."""

import sys
from pathlib import Path

from result_tables import keep

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from labelled_world import GUIDE, confusion_table, missed_table, outcomes, rule_counts, score_sentence


def main() -> None:
    """Keep the tables, and rewrite what stands between the marks of the guide."""
    found = outcomes()
    keep("preflight-world", confusion_table(found))
    keep("preflight-missed", missed_table(found))
    text = GUIDE.read_text(encoding="utf-8")
    for name, written in (("counts", rule_counts()), ("score", score_sentence(found))):
        before, _, rest = text.partition(f"<!-- {name} -->\n")
        text = f"{before}<!-- {name} -->\n{written}\n<!-- /{name} -->{rest.partition(f'<!-- /{name} -->')[2]}"
    GUIDE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
