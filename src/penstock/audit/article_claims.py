"""The checkable claims of five articles. The claims are paraphrased and ship as data with the package."""

from functools import cache
from importlib.resources import files
from typing import Final

from penstock.audit.claims.claim import Claim
from penstock.audit.parsing.claims_file import filed_under, parse_claims, unknown_targets
from penstock.errors import CatalogError

_ENDING: Final = ".claims.yaml"


@cache
def shipped_claims() -> tuple[Claim, ...]:
    """Return the shipped claims, sorted by article. Each id has the form `article/claim`."""
    folder = files("penstock.audit") / "data"
    found: list[Claim] = []
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(_ENDING):
            claims = parse_claims(entry.read_text(encoding="utf-8"), entry.name)
            found += filed_under(entry.name.removesuffix(_ENDING), claims)
    lost = unknown_targets(found)
    if lost:
        raise CatalogError(f"unknown claim ids: {', '.join(lost)}; no article in the ledger defines them")
    return tuple(found)


def contradictions(claims: tuple[Claim, ...]) -> tuple[tuple[str, str], ...]:
    """Return the pairs of claims that cannot both be true, as listed in the claims themselves.

    Each pair of ids is listed once.
    """
    pairs = {tuple(sorted((claim.id, other))) for claim in claims for other in claim.contradicts}
    return tuple(sorted((first, second) for first, second in pairs))
