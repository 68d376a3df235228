"""A flag of `simulate` does something with --fleet, or is refused in one line with where the same is said."""

from pathlib import Path

import pytest
from click import Command, Context
from click.testing import CliRunner

from penstock.cli.flags.misplaced_flags import NOT_FOR_A_FLEET, ONLY_FOR_A_FLEET
from penstock.cli.root import app
from penstock.errors import UsageError

FLEET = Path(__file__).resolve().parents[3] / "examples" / "fleets" / "chat-h100-mi300x.yaml"
READ = {
    *("fleet", "fleet_schema", "policy", "events", "reports", "pickers", "trace", "columns", "input_tokens"),
    *("output_tokens", "arrivals", "rate", "requests", "system_prompts", "slo", "seed", "chart", "as_json", "help"),
    "calibration",
}


def simulate_command() -> Command:
    found = app.get_command(Context(app), "simulate")
    assert found is not None
    return found


def test_every_flag_is_read_or_refused() -> None:
    names = {str(one.name) for one in simulate_command().params}
    assert names - READ == set(NOT_FOR_A_FLEET)
    assert set(ONLY_FOR_A_FLEET) < READ


VALUES = {"engine": "sglang", "route": "round-robin", "kv": "fp8", "precision": "int4", "think": "2s", "on": "h100"}


@pytest.mark.parametrize("name", sorted(NOT_FOR_A_FLEET))
def test_what_would_change_nothing_is_refused_with_the_fix(name: str) -> None:
    """Attack: replicas, engine, route and eight more were taken with --fleet and forgotten, with exit code 0."""
    one = next(one for one in simulate_command().params if one.name == name)
    word = next((option for option in one.opts if option.startswith("--")), None)
    typed = [] if word is None else [word]
    if word is None or not getattr(one, "is_flag", False):
        typed.append(VALUES.get(name, "2"))
    said = CliRunner().invoke(app, ["simulate", *typed, "--fleet", str(FLEET), "--requests", "5"])
    assert isinstance(said.exception, UsageError)
    (line,) = str(said.exception).splitlines()
    assert f"{word or 'the model'} would change nothing with --fleet; {NOT_FOR_A_FLEET[name]}" in line


@pytest.mark.parametrize("typed", [("--policy", "penstock"), ("--event", "loss 5%"), ("--pickers", "2")])
def test_a_fleets_flags_are_refused_without_one(typed: tuple[str, str]) -> None:
    said = CliRunner().invoke(app, ["simulate", "llama-3.1-8b", "--on", "h100", *typed])
    assert isinstance(said.exception, UsageError)
    assert f"{typed[0]} would change nothing without --fleet" in str(said.exception)
