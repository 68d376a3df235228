"""Is every planted mistake seen by a test? Plants those of tests/faults.toml one at a time, each in a copy of the tree.

A mistake is caught when a test fails that passes without it. Tests that cannot be collected, or that do not end, have
seen nothing.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from time import monotonic

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "tests/faults.toml"
SHIPPED = "src/penstock/compiled/shipped"
TIMEOUT_S = 1200
PROGRAMS = "tools/"
"""What is named instead of tests: a program that exits with 1."""
_FAILED, _PASSED = 1, 0


@dataclass(frozen=True, slots=True)
class Fault:
    """A mistake, where it is planted, and the tests that must see it."""

    id: str
    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def planted_in(self, text: str) -> str | None:
        """Return a file's text with the mistake; None where the code is gone or occurs twice."""
        return text.replace(self.old, self.new) if text.count(self.old) == 1 else None


@dataclass(frozen=True, slots=True)
class Finding:
    """What the tests said of a mistake."""

    fault: Fault
    failed: tuple[str, ...]
    """The first test that failed, of those that pass without the mistake."""
    trouble: str
    seconds: float

    @property
    def caught(self) -> bool:
        """Return whether a test saw it."""
        return bool(self.failed) and not self.trouble

    def line(self) -> str:
        """Return what is printed about it."""
        by = self.failed[0] if self.caught else self.trouble or "no test fails"
        return f"{'caught' if self.caught else 'MISSED'}  {self.fault.id:18} {self.seconds:4.0f} s  {by}"


def main() -> None:
    """Print each mistake with the test that saw it; exit 1 unless all are seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ids", nargs="*", help="mistakes to plant; all without")
    parser.add_argument("--jobs", type=int, default=1, help="copies of the tree that are tested at once")
    asked = parser.parse_args()
    faults = [fault for fault in read_faults() if not asked.ids or fault.id in asked.ids]
    if missing := set(asked.ids) - {fault.id for fault in faults}:
        parser.error(f"no mistake is called {', '.join(sorted(missing))}")
    gone = [fault for fault in faults if fault.planted_in((ROOT / fault.file).read_text(encoding="utf-8")) is None]
    for fault in gone:
        print(f"GONE    {fault.id}: its text does not occur exactly once in {fault.file}; replant it")
    findings = tested([fault for fault in faults if fault not in gone], asked.jobs)
    caught = sum(finding.caught for finding in findings)
    print(f"{caught} of {len(faults)} caught")
    raise SystemExit(0 if caught == len(faults) else 1)


def read_faults() -> list[Fault]:
    """Read the table."""
    rows = tomllib.loads(TABLE.read_text(encoding="utf-8"))["fault"]
    return [Fault(**{**row, "tests": tuple(row["tests"])}) for row in rows]


def tested(faults: list[Fault], jobs: int) -> list[Finding]:
    """Plant each mistake in a free copy of the tree, and print what its tests say of it."""
    copies: SimpleQueue[Path] = SimpleQueue()
    findings = []
    (ROOT / "build").mkdir(exist_ok=True)
    with TemporaryDirectory(prefix="faults-", dir=ROOT / "build") as folder, ThreadPoolExecutor(jobs) as pool:
        for number in range(jobs):
            copies.put(copied_tree(Path(folder) / str(number)))
        for finding in pool.map(lambda fault: planted(copies, fault), faults):
            print(finding.line(), flush=True)
            findings.append(finding)
    return findings


def planted(copies: SimpleQueue[Path], fault: Fault) -> Finding:
    """Return the first test that fails with a mistake and passes without it."""
    tree, begun = copies.get(), monotonic()
    path = tree / fault.file
    sound = path.read_text(encoding="utf-8")
    red: list[str] = []
    try:
        while True:
            path.write_text(fault.planted_in(sound) or "", encoding="utf-8")
            code, failed, said = outcome(tree, (*fault.tests, *(f"--deselect={name}" for name in red)))
            path.write_text(sound, encoding="utf-8")
            if not failed or outcome(tree, tuple(failed))[0] == _PASSED:
                break
            if failed[0] in red or failed[0].startswith(PROGRAMS):
                failed, code, said = [], None, f"{failed[0]} fails without it as well"
                break
            red += failed
    finally:
        path.write_text(sound, encoding="utf-8")
        copies.put(tree)
    trouble = "" if code in {_PASSED, _FAILED} else said
    return Finding(fault, tuple(failed), trouble, monotonic() - begun)


def outcome(tree: Path, tests: tuple[str, ...]) -> tuple[int | None, list[str], str]:
    """Run tests in a copy until one fails; return pytest's exit code, the test that failed, and its last line."""
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PENSTOCK_COMMAND"},
        "PYTHONPATH": str(tree / "src"),
        # Libraries of planted mistakes are built here, not into the user's cache.
        "XDG_CACHE_HOME": str(tree.parent / "cache"),
        # Compiled files of the copy are checked by the digest of their source; by its date, a mistake might be missed.
        "PYTHONDONTWRITEBYTECODE": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    program = tests[0] if tests[0].startswith(PROGRAMS) else ""
    pytest = ("-m", "pytest", "-n", "0", "-q", "--maxfail=1", "--tb=line", "-rfE", "-p", "no:cacheprovider")
    try:
        run = subprocess.run(  # noqa: S603 - our own tests
            [sys.executable, *(program.split() or (*pytest, *tests))],
            cwd=tree,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, [], f"its tests took more than {TIMEOUT_S} s"
    last = (run.stdout.strip().splitlines() or run.stderr.strip().splitlines() or ["nothing was said"])[-1]
    if program:
        return run.returncode, [program] if run.returncode == _FAILED else [], last
    return run.returncode, re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", run.stdout, re.MULTILINE), last


def copied_tree(place: Path) -> Path:
    """Copy the files of the repository, and the library that was built from them; nothing is planted in place."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],  # noqa: S607 - whichever git
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    names = [name for name in listed.split("\0") if name and (ROOT / name).is_file()]
    libraries = [str(path.relative_to(ROOT)) for path in (ROOT / SHIPPED).glob("*")]
    for name in (*names, *libraries):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, place / name)
    compiled = (
        sys.executable,
        "-m",
        "compileall",
        "-q",
        "--invalidation-mode",
        "checked-hash",
        "src",
        "tests",
        "tools",
    )
    subprocess.run(compiled, cwd=place, check=True)  # noqa: S603 - our own sources
    shared, beside = ROOT.parent / "shared", place.parent / "shared"
    if shared.is_dir() and not beside.exists():
        beside.symlink_to(shared)
    return place


if __name__ == "__main__":
    main()
