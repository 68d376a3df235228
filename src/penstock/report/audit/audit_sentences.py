"""What do all views of an audit say alike? Verdicts in their order, counts, and a claim in one line."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from penstock.audit.claims.amount import Amount
from penstock.audit.claims.claim import Claim
from penstock.audit.claims.kind_names import kind_of
from penstock.audit.judge_claims import Audited
from penstock.audit.judgement import Verdict

ORDER: Final = (
    Verdict.IMPOSSIBLE,
    Verdict.CONTRADICTED,
    Verdict.IMPLAUSIBLE,
    Verdict.UNDETERMINED,
    Verdict.PLAUSIBLE,
    Verdict.CONFIRMED,
)
"""What a reader must see first, first."""
MEANINGS: Final[Mapping[Verdict, str]] = {
    Verdict.IMPOSSIBLE: "breaks a bound of capacity, bandwidth or arithmetic however it is read",
    Verdict.CONTRADICTED: "by a sourced fact or date, or by its own inputs",
    Verdict.IMPLAUSIBLE: "possible, and far from all evidence",
    Verdict.UNDETERMINED: "nothing here can tell; what is missing is said",
    Verdict.PLAUSIBLE: "within what the evidence allows",
    Verdict.CONFIRMED: "a source, a config or a measurement says the same",
}


_ABOUT: Final = ("subject", "model", "part", "quantity", "event")
"""What names the thing a statement is about, whatever its kind."""


def counts(audited: Sequence[Audited]) -> dict[Verdict, int]:
    """Count verdicts, the worst first; those nobody got are left out."""
    found = Counter(entry.judgement.verdict for entry in audited)
    return {verdict: found[verdict] for verdict in ORDER if found[verdict]}


def sorted_by_verdict(audited: Sequence[Audited]) -> list[Audited]:
    """Put the worst first and leave the order alone otherwise."""
    return sorted(audited, key=lambda entry: ORDER.index(entry.judgement.verdict))


def said(claim: Claim) -> str:
    """A claim in words: those given, or its kind and id, with what it is about and its figure."""
    if claim.words:
        return claim.words
    statement = claim.statement
    told = getattr(statement, "setup", statement)
    about = [str(getattr(told, name)) for name in _ABOUT if isinstance(getattr(told, name, None), str)]
    amount = getattr(statement, "amount", None)
    figure = f" {amount.written}" if isinstance(amount, Amount) else ""
    return f"{kind_of(statement)} {claim.id}: {' '.join(about)}{figure}".rstrip(": ")


def sentence(text: str) -> str:
    """A reason as a sentence: it begins large, unless a name that is written small comes first, and ends."""
    first = text.split(" ", maxsplit=1)[0]
    return f"{text[:1].upper()}{text[1:]}." if first.isalpha() else f"{text}."


def summary(audited: Sequence[Audited]) -> str:
    """How many claims, and how many of each verdict."""
    total = f"{len(audited)} claim{'' if len(audited) == 1 else 's'}"
    return f"{total}: " + ", ".join(f"{count} {verdict}" for verdict, count in counts(audited).items())
