"""Fixtures of the contract suite: ask the installed command, compare with what is recorded."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from contract.doors import Answer, Driver, fill, run_process, running_driver, write_all_inputs
from contract.recording import Recorder, Tally

Ask = Callable[..., Answer]
_COUNTS = ("answers", "values", "numbers")
_SLOW_S = 3.0


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="session")
def driver(home: Path) -> Iterator[Driver]:
    with running_driver(home) as made:
        yield made


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_all_inputs(tmp_path_factory.mktemp("inputs"))


@pytest.fixture
def folder(tmp_path: Path, inputs: Path) -> Path:
    """A folder with all input files, where the calls of a test run."""
    return fill(tmp_path, inputs)


@pytest.fixture
def ask(driver: Driver, folder: Path, record_property: Callable[[str, object], None]) -> Ask:
    """Answer calls; those of one test share a folder."""

    def asked(words: str | Sequence[str], given: str = "") -> Answer:
        answer = driver(words, folder, given)
        record_property("processor_s", answer.processor_s)
        return answer

    return asked


@pytest.fixture
def run(home: Path, folder: Path) -> Ask:
    """Answer calls as processes of their own."""

    def ran(words: str | Sequence[str], given: str = "") -> Answer:
        return run_process(words, folder, home, given)

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
    found = (report for reports in terminalreporter.stats.values() for report in reports)
    ended = [report for report in found if isinstance(report, pytest.TestReport) and report.when == "teardown"]
    properties = [entry for report in ended for entry in report.user_properties]
    counts = {name: sum(int(str(value)) for key, value in properties if key == name) for name in _COUNTS}
    seconds = [
        (float(str(value)), report.nodeid)
        for report in ended
        for key, value in report.user_properties
        if key == "processor_s"
    ]
    for used_s, test in sorted(seconds, reverse=True):
        if used_s > _SLOW_S:
            terminalreporter.write_line(f"{used_s:.1f} processor seconds in a call of {test}")
    for key, text in properties:
        if key == "accepted":
            terminalreporter.write_line(f"accepted {text}")
    if counts["answers"]:
        terminalreporter.write_line(
            f"contract: {counts['answers']:,} answers with {counts['numbers']:,} numbers of {counts['values']:,} values"
            f" in {len(seconds)} calls of {sum(used_s for used_s, _ in seconds):.0f} processor seconds"
        )
