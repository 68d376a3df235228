"""Keeps prices append-only: a digest per recorded price, so that an edit to an old one cannot pass unseen.

The digest is of what was published. What the catalog says about it (`component`, `corrected_by`, `available`) has a line
of its own: the line of the price stays true, and neither setting nor clearing it passes unseen.

`make ledger` adds lines for new prices. `--check` fails when a price changed, vanished, or is not recorded yet.
"""

import hashlib
import sys
from pathlib import Path

from penstock.catalog import load_api_prices, load_prices, priced_ids
from penstock.report.drawing.plain_json import plain_fields, to_json

LEDGER = Path(__file__).resolve().parent.parent / "src/penstock/catalog/data/prices/ledger.txt"

_SAID_LATER = frozenset({"component", "corrected_by", "available", "term_months", "survey"})


def digests() -> dict[str, str]:
    """Digest every price in the catalog."""
    found = {}
    for ident in priced_ids():
        for price in load_prices(ident):
            fields = plain_fields(price)
            # A field that prices once did not have is part of the digest only where one has it.
            term = {key: fields[key] for key in ("term_months", "survey") if fields[key]}
            published = {key: value for key, value in fields.items() if key not in _SAID_LATER}
            found[price.id] = _digest(ident, {**published, **term})
            if price.component:
                found[f"{price.id}.component"] = _digest(ident, {**published, **term, "component": True})
            if price.available is not None:
                found[f"{price.id}.available"] = _digest(ident, {**published, "available": price.available})
            if price.corrected_by is not None:
                found[f"{price.id}.corrected_by"] = _digest(ident, {**published, "corrected_by": price.corrected_by})
    for listed in load_api_prices():
        found[f"api.{listed.model}.{listed.checked_on}"] = _digest("api", plain_fields(listed))
    return found


def _digest(ident: str, value: object) -> str:
    return hashlib.sha256(f"{ident}\n{to_json(value)}".encode()).hexdigest()[:16]


def recorded() -> dict[str, str]:
    """Read the ledger."""
    if not LEDGER.is_file():
        return {}
    lines = (line.split() for line in LEDGER.read_text(encoding="utf-8").splitlines() if line.strip())
    return {line[0]: line[1] for line in lines}


def main() -> int:
    """Check or extend the ledger."""
    now, before = digests(), recorded()
    changed = sorted(ident for ident, digest in before.items() if now.get(ident) != digest)
    if changed:
        print(
            f"prices changed or vanished: {', '.join(changed)}; append a new entry with its own date", file=sys.stderr
        )
        return 1
    new = sorted(now.keys() - before.keys())
    if "--check" in sys.argv:
        if new:
            print(f"prices not in the ledger: {', '.join(new)}; run `make ledger`", file=sys.stderr)
        return 1 if new else 0
    with LEDGER.open("a", encoding="utf-8") as ledger:
        ledger.writelines(f"{ident} {now[ident]}\n" for ident in new)
    print(f"{len(new)} prices recorded")
    return 0


if __name__ == "__main__":
    sys.exit(main())
