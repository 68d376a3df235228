"""Checks, before a launch, whether a checkpoint runs correctly on an accelerator, and proposes a launch command."""

from penstock.preflight.check import check
from penstock.preflight.facts.derive_facts import derive_facts
from penstock.preflight.facts.launch_command import parse_command
from penstock.preflight.facts.quantisation_scheme import read_scheme
from penstock.preflight.facts.situation import Launch, ScannedFacts, Situation, StoredFacts, Subject
from penstock.preflight.launch.launch_choices import LaunchChoices
from penstock.preflight.launch.launch_plan import LaunchPlan
from penstock.preflight.preflight_result import Preflight, PreflightQuestion, Readiness
from penstock.preflight.rules._rule_files import load_knowledge, load_rules
from penstock.preflight.rules.condition import Facts, Unknown
from penstock.preflight.rules.findings import Assessment, Finding, Undetermined, assess
from penstock.preflight.rules.rule import Grounds, Rule, Severity

__all__ = [
    "Assessment",
    "Facts",
    "Finding",
    "Grounds",
    "Launch",
    "LaunchChoices",
    "LaunchPlan",
    "Preflight",
    "PreflightQuestion",
    "Readiness",
    "Rule",
    "ScannedFacts",
    "Severity",
    "Situation",
    "StoredFacts",
    "Subject",
    "Undetermined",
    "Unknown",
    "assess",
    "check",
    "derive_facts",
    "load_knowledge",
    "load_rules",
    "parse_command",
    "read_scheme",
]
