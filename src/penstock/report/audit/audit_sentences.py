"""Defines the text that all views of an audit share.

The text consists of the counts of the verdicts, most serious first, and one line per claim.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from penstock.audit.claims.amount import Amount
from penstock.audit.claims.claim import Claim
from penstock.audit.claims.kind_names import kind_of
from penstock.audit.judge_claims import Audited
from penstock.audit.judgement import Judgement, Verdict

ORDER: Final = (
    Verdict.IMPOSSIBLE,
    Verdict.CONTRADICTED,
    Verdict.IMPLAUSIBLE,
    Verdict.UNDETERMINED,
    Verdict.PLAUSIBLE,
    Verdict.CONFIRMED,
)
"""Verdicts in the order in which they are displayed, most serious first."""
MEANINGS: Final[Mapping[Verdict, str]] = {
    Verdict.IMPOSSIBLE: "exceeds a bound on capacity, bandwidth or arithmetic in every interpretation",
    Verdict.CONTRADICTED: "contradicted by a sourced fact or date, or by its own inputs",
    Verdict.IMPLAUSIBLE: "possible, but far from all evidence",
    Verdict.UNDETERMINED: "data is missing; the reason names the missing data",
    Verdict.PLAUSIBLE: "consistent with the evidence",
    Verdict.CONFIRMED: "a source, a config or a measurement says the same",
}


_BETTER: Final = {Verdict.IMPOSSIBLE: "possible", Verdict.IMPLAUSIBLE: "plausible"}
"""What a claim would be if its condition were met, by verdict. With every other verdict, the claim would be true."""
_ABOUT: Final = ("subject", "model", "accelerator", "quantity", "event")
"""Names of attributes that may hold the subject of a claim's statement."""


def counts(audited: Sequence[Audited]) -> dict[Verdict, int]:
    """Count the claims per verdict, sorted by verdict, most serious first. Verdicts without a claim are left out."""
    found = Counter(entry.judgement.verdict for entry in audited)
    return {verdict: found[verdict] for verdict in ORDER if found[verdict]}


def sorted_by_verdict(audited: Sequence[Audited]) -> list[Audited]:
    """Sort claims by verdict, most serious first. Claims with equal verdicts keep their order."""
    return sorted(audited, key=lambda entry: ORDER.index(entry.judgement.verdict))


def claim_text(claim: Claim) -> str:
    """Return the text of a claim. If the claim has no text, return its kind, id, subject and figure."""
    if claim.words:
        return claim.words
    statement = claim.statement
    described = getattr(statement, "setup", statement)
    about = [str(getattr(described, name)) for name in _ABOUT if isinstance(getattr(described, name, None), str)]
    amount = getattr(statement, "amount", None)
    figure = f" {amount.written}" if isinstance(amount, Amount) else ""
    return f"{kind_of(statement)} {claim.id}: {' '.join(about)}{figure}".rstrip(": ")


def sentence(text: str) -> str:
    """Turn the reason for a verdict into a sentence with a full stop.

    The sentence starts with a capital letter unless its first word is an identifier.
    """
    first = text.split(" ", maxsplit=1)[0]
    ended = text if text.endswith(".") else f"{text}."
    return f"{ended[:1].upper()}{ended[1:]}" if first.isalpha() else ended


def condition_sentence(judgement: Judgement) -> str | None:
    """Return a sentence that says what would have to be different, or None if the judgement names no condition."""
    if judgement.true_if is None:
        return None
    return f"The claim would be {_BETTER.get(judgement.verdict, 'true')} if {judgement.true_if}."


def summary(audited: Sequence[Audited]) -> str:
    """Return the number of claims and the count of each verdict as one line."""
    total = f"{len(audited)} claim{'' if len(audited) == 1 else 's'}"
    return f"{total}: " + ", ".join(f"{count} {verdict}" for verdict, count in counts(audited).items())
