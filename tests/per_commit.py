"""What a commit's run leaves to the night: refits whose data and code are unchanged, and sweeps out of their turn.

A test with the mark `refit` asserts what follows from data and from the code that reads it. It is skipped while
tests/refits.toml has the digest of everything it stands on. One in so many of the tests with the mark `in_turn` runs;
which, follows from the commit's tree.
"""

import os
import subprocess
import tomllib
from collections import Counter, defaultdict
from pathlib import Path
from zlib import crc32

import pytest

from import_closure import ROOT, closure_digest

TABLE = ROOT / "tests/refits.toml"
HEADER = """\
# Refits that passed, with the digest of the test, of all that it imports and of the data beside those modules. They are
# skipped for a commit while the digest is the same. `make refits` runs all and writes this file; never edit it by hand.
"""
UNCHANGED, NOT_ITS_TURN = "passed with the same data and code", "not this commit's turn"


class PerCommit:
    """Skips, counts and records."""

    def __init__(self, config: pytest.Config) -> None:
        partial = config.getoption("keyword") or any("::" in name for name in config.args)
        if config.getoption("--record-refits") and partial:
            raise pytest.UsageError("--record-refits needs whole files")
        self.skips, self.records = bool(config.getoption("--per-commit")), not partial
        self.recorded: dict[str, str] = tomllib.loads(TABLE.read_text(encoding="utf-8")) if TABLE.is_file() else {}
        self.passed: dict[str, bool] = {}
        self.left_out: Counter[str] = Counter()
        self.digests: dict[str, str] = {}
        self.in_turn: list[str] = []
        self.refits: set[str] = set()

    def pytest_report_header(self) -> str:
        return f"per commit: turn {commit_turn()}" if self.skips else "per commit: refits are recorded"

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        places: defaultdict[str, int] = defaultdict(int)
        for item in items:
            refit, in_turn = item.get_closest_marker("refit"), item.get_closest_marker("in_turn")
            if refit is not None:
                self._settle_refit(item, refit.args)
            if in_turn is not None and self.skips:
                of_function = item.nodeid.partition("[")[0]
                turns = in_turn.args[0]
                if (places[of_function] + crc32(item.nodeid.partition("::")[0].encode()) + commit_turn()) % turns:
                    item.add_marker(pytest.mark.skip(reason=f"{NOT_ITS_TURN}: one in {turns} runs, all at night"))
                else:
                    item.user_properties.append(("in_turn", item.nodeid))
                places[of_function] += 1

    def _settle_refit(self, item: pytest.Item, reads: tuple[str, ...]) -> None:
        file = item.nodeid.partition("::")[0]
        if file not in self.digests:
            self.digests[file] = closure_digest(item.path, reads)
        item.user_properties.append(("refit", self.digests[file]))
        if self.skips and self.recorded.get(file) == self.digests[file]:
            item.add_marker(pytest.mark.skip(reason=f"{UNCHANGED} ({self.digests[file]}); all run at night"))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what ran; with workers, the process that hears of all tests is another than those that collect."""
        properties = dict(report.user_properties)
        file = report.nodeid.partition("::")[0]
        if report.skipped and isinstance(report.longrepr, tuple):
            self.left_out.update(reason for reason in (UNCHANGED, NOT_ITS_TURN) if reason in report.longrepr[2])
        if "refit" in properties:
            self.digests[file] = str(properties["refit"])
            self.passed[file] = self.passed.get(file, True) and report.passed
        if report.when == "call":
            self.in_turn += [report.nodeid] if "in_turn" in properties else []
            self.refits |= {report.nodeid} if "refit" in properties else set()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
        if "PYTEST_XDIST_WORKER" in os.environ:
            return
        say = terminalreporter.write_line
        if self.skips:
            say(f"refits skipped by digest: {self.left_out[UNCHANGED]}; run: {len(self.refits)}")
            say(f"in turn, run: {', '.join(self.in_turn) or 'none'}; left to the night: {self.left_out[NOT_ITS_TURN]}")
        new = {file: self.digests[file] for file, passed in self.passed.items() if passed}
        if self.records and exitstatus == pytest.ExitCode.OK:
            merged = {file: digest for file, digest in {**self.recorded, **new}.items() if (ROOT / file).is_file()}
            if merged != self.recorded:
                lines = (f'"{file}" = "{digest}"' for file, digest in sorted(merged.items()))
                TABLE.write_text(HEADER + "\n".join(lines) + "\n", encoding="utf-8")
                say("tests/refits.toml has new digests of what passed: commit it")


def commit_turn() -> int:
    """Return a number that follows from the commit's tree, or 0 where there is no repository."""
    told = os.environ.get("PENSTOCK_TURN")
    if told:
        return int(told)
    asked = ("git", "rev-parse", "HEAD^{tree}")
    done = subprocess.run(asked, cwd=Path(ROOT), capture_output=True, text=True, check=False)
    os.environ["PENSTOCK_TURN"] = str(int(done.stdout[:8], 16)) if done.returncode == 0 else "0"
    return int(os.environ["PENSTOCK_TURN"])
