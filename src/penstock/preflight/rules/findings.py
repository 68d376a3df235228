"""Evaluates every rule against one set of facts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.fleet.engines import NEWEST
from penstock.fleet.release import Release
from penstock.preflight.rules.condition import Facts, Unknown, Value
from penstock.preflight.rules.rule import Rule, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A rule that applies."""

    rule: Rule
    because: Mapping[str, Value]
    """The facts that its condition used."""
    unchecked_since: Release | None
    """The newest release read, if the engine is newer and the rule has no upper bound."""

    @property
    def severity(self) -> Severity:
        """The severity of the rule."""
        return self.rule.severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Undetermined:
    """A rule that the facts do not decide, and the missing information."""

    rule: Rule
    missing: Mapping[str, str]
    """Unknown facts, each with the information that would decide it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """The rules that apply, worst first, and those that could not be decided."""

    findings: tuple[Finding, ...]
    undetermined: tuple[Undetermined, ...]
    rules_checked: int

    def of(self, severity: Severity) -> tuple[Finding, ...]:
        """Return the findings of one severity."""
        return tuple(finding for finding in self.findings if finding.severity is severity)

    @property
    def passes(self) -> bool:
        """Whether no finding stops the launch or makes answers silently wrong."""
        return not self.of(Severity.SILENT_WRONG) and not self.of(Severity.BLOCKER)


def assess(rules: Iterable[Rule], facts: Facts) -> Assessment:
    """Evaluate every rule; undecided rules are returned as undetermined, never dropped."""
    findings, undetermined, checked = [], [], 0
    for rule in rules:
        checked += 1
        truth = rule.holds(facts)
        if truth:
            findings.append(_finding(rule, facts))
        elif truth is None:
            undetermined.append(Undetermined(rule=rule, missing=_missing(rule, facts)))
    order = list(Severity)
    findings.sort(key=lambda finding: (order.index(finding.severity), finding.rule.id))
    undetermined.sort(key=lambda entry: (order.index(entry.rule.severity), entry.rule.id))
    return Assessment(findings=tuple(findings), undetermined=tuple(undetermined), rules_checked=checked)


def _finding(rule: Rule, facts: Facts) -> Finding:
    known = {name: facts[name] for name in rule.when.names if name in facts}
    return Finding(
        rule=rule,
        because={name: value for name, value in known.items() if not isinstance(value, Unknown)},
        unchecked_since=_last_checked_release(rule, facts),
    )


def _last_checked_release(rule: Rule, facts: Facts) -> Release | None:
    """Return the newest release read, if an open-ended rule is applied to a later one."""
    version, engine = facts.get("version"), facts.get("engine")
    read = NEWEST.get(engine) if isinstance(engine, str) else None
    bounded = rule.engine is None or (rule.versions is not None and not rule.versions.open_ended)
    return read if not bounded and read is not None and isinstance(version, Release) and version > read else None


def _missing(rule: Rule, facts: Facts) -> Mapping[str, str]:
    found = {}
    for name in rule.missing(facts):
        value = facts.get(name, Unknown(f"{name} is not stated"))
        found[name] = value.why if isinstance(value, Unknown) else ""
    return found
