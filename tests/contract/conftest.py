"""Fixtures of the contract suite: ask the installed command, compare with what is recorded."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from contract.doors import Answer, Driver, fill, run_process, running_driver
from contract.recording import Recorder, Tally

Ask = Callable[..., Answer]
_COUNTS = ("answers", "values", "numbers")


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="session")
def driver(home: Path) -> Iterator[Driver]:
    with running_driver(home) as made:
        yield made


@pytest.fixture
def ask(driver: Driver, tmp_path: Path) -> Ask:
    """Answer calls in a folder with all input files; calls of one test share it."""
    fill(tmp_path)

    def asked(words: str | Sequence[str], given: str = "") -> Answer:
        return driver(words, tmp_path, given)

    return asked


@pytest.fixture
def run(home: Path, tmp_path: Path) -> Ask:
    """Answer calls as processes of their own."""
    fill(tmp_path)

    def ran(words: str | Sequence[str], given: str = "") -> Answer:
        return run_process(words, tmp_path, home, given)

    return ran


@pytest.fixture
def recorded(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> Iterator[Recorder]:
    """Compare an answer with the recorded one; `--accept` keeps it instead."""
    tally = Tally()
    yield Recorder(accept=request.config.getoption("--accept"), tally=tally)
    for name in _COUNTS:
        record_property(name, getattr(tally, name))
    for changed in tally.differences:
        record_property("accepted", changed)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was compared and, with `--accept`, every difference: workers cannot print."""
    reports = [
        report for found in terminalreporter.stats.values() for report in found if hasattr(report, "user_properties")
    ]
    properties = [entry for report in reports if report.when == "teardown" for entry in report.user_properties]
    counts = {name: sum(int(value) for key, value in properties if key == name) for name in _COUNTS}
    for key, text in properties:
        if key == "accepted":
            terminalreporter.write_line(f"accepted {text}")
    if counts["answers"]:
        terminalreporter.write_line(
            f"contract: {counts['answers']:,} answers with {counts['numbers']:,} numbers of {counts['values']:,} values"
        )
