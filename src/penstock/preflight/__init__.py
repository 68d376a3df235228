"""Will this checkpoint run here, will it be right, and with which flags? Rules, predictions and launch commands."""

from penstock.performance.release import Release
from penstock.preflight._load import load_knowledge, load_rules
from penstock.preflight.check import Preflight, PreflightQuestion, Readiness, check
from penstock.preflight.command import parse_command
from penstock.preflight.condition import Facts, Unknown
from penstock.preflight.facts import derive_facts
from penstock.preflight.findings import Assessment, Finding, Undetermined, assess
from penstock.preflight.launch import Asked, LaunchPlan
from penstock.preflight.rule import Grounds, Rule, Severity
from penstock.preflight.scheme import read_scheme
from penstock.preflight.situation import Launch, ScannedFacts, Situation, StoredFacts, Subject

__all__ = [
    "Asked",
    "Assessment",
    "Facts",
    "Finding",
    "Grounds",
    "Launch",
    "LaunchPlan",
    "Preflight",
    "PreflightQuestion",
    "Readiness",
    "Release",
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
