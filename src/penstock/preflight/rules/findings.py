"""Evaluates every rule with the facts of one deployment."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.fleet.engines import NEWEST
from penstock.fleet.release import Release
from penstock.preflight.rules.condition import Facts, Unknown, Value
from penstock.preflight.rules.history import EngineFlags
from penstock.preflight.rules.rule import Rule, Severity

_OF_A_SETUP = frozenset({"engine", "version", "platform", "chip", "accelerator", "chip.fp8", "chip.fp4"})
"""Facts of an engine and a chip. A rule that they rule out applies to no model and no launch there."""
_WORTH_ASKING = frozenset({Severity.SILENT_WRONG, Severity.BLOCKER, Severity.WARNING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A rule that applies, and the facts that make the rule apply."""

    rule: Rule
    because: Mapping[str, Value]
    """The known facts that the rule's condition uses, by name."""
    unchecked_since: Release | None
    """The newest release whose source code was read, if the checked release is newer and the rule has no last release.

    Otherwise None.
    """
    cited_lines: str | None = None
    """Whether the lines of source code that the rule cites hold, moved or are gone in the checked release.

    None if no data pack of the release says so.
    """

    @property
    def severity(self) -> Severity:
        """The severity of the rule that applies."""
        return self.rule.severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Undetermined:
    """A rule for which the facts do not suffice, and the information that is missing."""

    rule: Rule
    missing: Mapping[str, str]
    """The information that would decide the rule, by name of the unknown fact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """The rules that apply and the rules that could not be decided, each sorted by severity, worst first."""

    findings: tuple[Finding, ...]
    undetermined: tuple[Undetermined, ...]
    rules_checked: int
    """Number of rules that can apply to this engine, release and chip. The others were never in question."""

    def of(self, severity: Severity) -> tuple[Finding, ...]:
        """Return the findings that have a severity."""
        return tuple(finding for finding in self.findings if finding.severity is severity)

    @property
    def open_questions(self) -> tuple[Undetermined, ...]:
        """The undecided rules that could change the verdict, without those that only a scan of the bytes decides."""
        return tuple(
            entry
            for entry in self.undetermined
            if entry.rule.severity in _WORTH_ASKING and not all(name.startswith("bytes.") for name in entry.missing)
        )

    @property
    def passes(self) -> bool:
        """Whether no rule that applies stops the launch or makes answers silently wrong."""
        return not self.of(Severity.SILENT_WRONG) and not self.of(Severity.BLOCKER)


def assess(
    rules: Iterable[Rule], facts: Facts, standings: Mapping[tuple[str, Release], Mapping[str, str]] | None = None
) -> Assessment:
    """Evaluate every rule. A rule that cannot be decided is returned as undetermined and is never dropped.

    `standings` says, for the releases that a data pack describes, whether the lines that a rule cites still stand.
    """
    engine, version, learned = facts.get("engine"), facts.get("version"), standings or {}
    last_read: Release | None = None
    cited: Mapping[str, str] = {}
    if isinstance(engine, str) and isinstance(version, Release):
        last_read, cited = last_read_release(engine, version, learned), learned.get((engine, version), {})
    setup: Facts = {name: value for name, value in facts.items() if name in _OF_A_SETUP}
    findings, undetermined, checked = [], [], 0
    for rule in rules:
        if rule.holds(setup) is False:
            continue
        checked += 1
        truth = rule.holds(facts)
        if truth:
            findings.append(_finding(rule, facts, last_read, cited.get(rule.id)))
        elif truth is None:
            undetermined.append(Undetermined(rule=rule, missing=_missing(rule, facts)))
    order = list(Severity)
    findings.sort(key=lambda finding: (order.index(finding.severity), finding.rule.id))
    undetermined.sort(key=lambda entry: (order.index(entry.rule.severity), entry.rule.id))
    return Assessment(findings=tuple(findings), undetermined=tuple(undetermined), rules_checked=checked)


def _finding(rule: Rule, facts: Facts, last_read: Release | None, cited_lines: str | None) -> Finding:
    known = {name: facts[name] for name in rule.when.names if name in facts}
    bounded = rule.engine is None or (rule.versions is not None and not rule.versions.open_ended)
    return Finding(
        rule=rule,
        because={name: value for name, value in known.items() if not isinstance(value, Unknown)},
        unchecked_since=None if bounded else last_read,
        cited_lines=cited_lines,
    )


def last_read_release(engine: str, version: Release, learned: Iterable[tuple[str, Release]]) -> Release | None:
    """Return the newest release before this one that was read. Return None if this release was read, or is older.

    A release was read for the rules, or as a data pack, of which `learned` lists engine and release.
    """
    newest, packs = NEWEST.get(engine), [release for name, release in learned if name == engine]
    if newest is None or version <= newest or version in packs:
        return None
    return max([newest, *(release for release in packs if release < version)])


def first_read_release(version: Release, known: EngineFlags) -> Release | None:
    """Return the first release whose flags were read, if this release is older. Otherwise return None."""
    first = known.flags.read[0]
    return first if version < first else None


def _missing(rule: Rule, facts: Facts) -> Mapping[str, str]:
    found = {}
    for name in rule.missing(facts):
        value = facts.get(name, Unknown(f"{name} is not stated"))
        found[name] = value.why if isinstance(value, Unknown) else ""
    return found
