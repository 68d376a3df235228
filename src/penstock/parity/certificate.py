"""Compares the setups of servers fact by fact, and certifies what is equal, what differs and what is unverified."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from penstock.parity.compare_answers import Answers, ProbeVerdict, compare
from penstock.parity.setup_facts import FACTS, OF_THE_MODEL, ServerSetup, SetupFact


class Standing(StrEnum):
    """Result of comparing one fact between servers."""

    SAME = "same"
    MARKED = "differs"
    """The difference is allowed, and is stated with the results."""
    REFUSED = "refused"
    """The difference makes the servers incomparable."""
    UNVERIFIED = "not verified"
    """At least one server does not state the fact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedFact:
    """One fact with the value of each server."""

    fact: SetupFact
    values: Mapping[str, str | None]
    """Value by the name of the target; None if the server does not state it."""
    standing: Standing

    @property
    def sentence(self) -> str:
        """Return the values of all servers as a sentence."""
        said = ", ".join(
            f"{target}: {'not stated' if value is None else value}" for target, value in self.values.items()
        )
        return f"{self.fact.title} ({said})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityCertificate:
    """Comparison of all facts of two or more servers."""

    targets: tuple[str, ...]
    facts: tuple[ComparedFact, ...]
    kept_shut: Mapping[str, tuple[str, ...]]
    """Paths that each server does not answer."""

    def having(self, standing: Standing) -> tuple[ComparedFact, ...]:
        """Return the facts with one standing."""
        return tuple(one for one in self.facts if one.standing is standing)

    @property
    def holds(self) -> bool:
        """Return whether no difference makes the servers incomparable."""
        return not self.having(Standing.REFUSED)


def certify(
    setups: Sequence[ServerSetup],
    *,
    scored: Mapping[str, Answers] | None = None,
    accepted: Collection[str] = (),
) -> ParityCertificate:
    """Compare servers. A difference in an `accepted` fact is marked instead of refused.

    `scored` has the log-probabilities of targets that return them.
    """
    with_scores = _with_logprobs(setups, scored or {})
    return ParityCertificate(
        targets=tuple(one.target for one in setups),
        facts=tuple(_compare_fact(fact, with_scores, accepted) for fact in FACTS),
        kept_shut={one.target: one.kept_shut for one in setups if one.kept_shut},
    )


def _compare_fact(fact: SetupFact, setups: Sequence[ServerSetup], accepted: Collection[str]) -> ComparedFact:
    values = {one.target: one.values.get(fact.name) for one in setups}
    stated = {value for value in values.values() if value is not None}
    if len(stated) > 1:
        tolerated = not fact.refuses or fact.name in accepted or (len(stated) == 2 and OF_THE_MODEL in stated)
        standing = Standing.MARKED if tolerated else Standing.REFUSED
    else:
        standing = Standing.UNVERIFIED if None in values.values() else Standing.SAME
    return ComparedFact(fact=fact, values=values, standing=standing)


def _with_logprobs(setups: Sequence[ServerSetup], scored: Mapping[str, Answers]) -> list[ServerSetup]:
    """Add whether the log-probabilities of each server agree with those of the first server."""
    reference = scored.get(setups[0].target)
    found = []
    for one in setups:
        answers, values = scored.get(one.target), one.values
        if reference is not None and answers is not None:
            verdict = ProbeVerdict.SAME if answers is reference else compare(reference, answers).verdict
            if verdict is not ProbeVerdict.INCONCLUSIVE:
                values = {**values, "logprobs": str(verdict)}
        found.append(replace(one, values=values))
    return found
