"""Installs the wheel in an empty environment for every Python found, and runs every command of Penstock once.

    python tools/check_pythons.py dist/penstock-*.whl                # Pythons 3.11 to 3.14 on the PATH and in pyenv
    python tools/check_pythons.py dist/penstock-*.tar.gz --python python3.12
    python tools/check_pythons.py --bin build/wheel-venv/bin         # without an installation

Prints the size of each installation, and the exit code and the time of each command. Commands that need an extra run
after it was installed.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from every_command import BASE, EXTRAS, Call, run_call, serve_and_route, write_inputs

REPOSITORY: Final = Path(__file__).resolve().parents[1]
VERSIONS: Final = ("3.11", "3.12", "3.13", "3.14")
_LISTED: Final = re.compile(r"^│ (\w[\w-]*) {2,}\w", re.MULTILINE)
"""A command in the boxes of `penstock --help`. Options begin with a dash."""


def found_pythons() -> Iterator[Path]:
    """Find one interpreter per version, on the PATH or in pyenv."""
    for version in VERSIONS:
        kept = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
        on_path = shutil.which(f"python{version}")
        if kept:
            yield kept[-1]
        elif on_path is not None and _answers(on_path):
            yield Path(on_path)
        else:
            print(f"python {version}: not found on this machine", flush=True)


def _answers(python: str) -> bool:
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0  # noqa: S603


def installed(python: Path, package: Path, folder: Path) -> Path:
    """Install a wheel or an sdist with its pinned dependencies in a new environment. Return its bin folder."""
    subprocess.run([python, "-m", "venv", folder], check=True)  # noqa: S603 - a Python of this machine
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pinned = REPOSITORY / "constraints" / "base.txt"
    subprocess.run([*pip, "--require-hashes", "--requirement", str(pinned)], check=True)  # noqa: S603
    subprocess.run([*pip, "--no-deps", str(package)], check=True)  # noqa: S603
    return folder / "bin"


def add_extras(bin_folder: Path, package: Path) -> None:
    """Install what `route`, `emulate` and `mcp` need, in the newest releases that the wheel allows."""
    pip = [str(bin_folder / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, f"penstock[gateway,mcp] @ {package.absolute().as_uri()}"], check=True)  # noqa: S603


def sizes_mb(bin_folder: Path) -> list[tuple[str, float]]:
    """Return the megabytes of each installed package, the largest first, without pip."""
    (packages,) = (bin_folder.parent / "lib").glob("python*/site-packages")
    found: dict[str, int] = {}
    for file in packages.rglob("*"):
        if file.is_file() and not file.is_symlink():
            top = re.split(r"[-.]", file.relative_to(packages).parts[0].removeprefix("_"))[0]
            found[top] = found.get(top, 0) + file.stat().st_size
    found.pop("pip", None)
    return sorted(((name, size / 1e6) for name, size in found.items()), key=lambda one: -one[1])


def listed_commands(bin_folder: Path) -> set[str]:
    """Return the commands that `penstock --help` lists."""
    helped = subprocess.run([bin_folder / "penstock", "--help"], capture_output=True, text=True, check=True)  # noqa: S603
    return set(_LISTED.findall(helped.stdout))


def run_all(bin_folder: Path, calls: tuple[Call, ...], *, gateway: bool) -> tuple[int, set[str]]:
    """Run the calls in an empty directory. Return the number of unexpected exit codes, and the commands that ran."""
    bad, ran = 0, set()
    environment = {
        **{name: value for name, value in os.environ.items() if name in {"LANG", "OPENBLAS_NUM_THREADS"}},
        "PATH": f"{bin_folder.absolute()}:/usr/bin:/bin",
        "NO_COLOR": "1",
    }
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        environment["HOME"] = str(directory / "home")
        write_inputs(directory)
        outcomes = [run_call(call, directory, environment) for call in calls]
        if gateway:
            outcomes += serve_and_route(directory, environment)
    for outcome in outcomes:
        ran.add(outcome.call.words[0])
        verdict = "ok " if outcome.good else "BAD"
        print(f"  {verdict} exit {outcome.exit_code} {outcome.seconds:6.1f} s  {' '.join(outcome.call.words)[:80]}")
        if not outcome.good:
            bad += 1
            print(outcome.error[-800:], file=sys.stderr)
    return bad, ran


def check(bin_folder: Path, package: Path | None) -> int:
    """Run every command of one installation. Return how many failed or were not run."""
    by_package = sizes_mb(bin_folder)
    largest = ", ".join(f"{name} {size:.0f}" for name, size in by_package[:6])
    print(f"  {sum(size for _, size in by_package):.0f} MB installed: {largest}", flush=True)
    bad, ran = run_all(bin_folder, BASE, gateway=False)
    if package is not None:
        add_extras(bin_folder, package)
        print(f"  {sum(size for _, size in sizes_mb(bin_folder)):.0f} MB with the extras gateway and mcp", flush=True)
    more_bad, more = run_all(bin_folder, EXTRAS, gateway=True)
    missed = listed_commands(bin_folder) - ran - more
    if missed:
        print(f"  BAD never run: {', '.join(sorted(missed))}")
    return bad + more_bad + len(missed)


def main() -> int:
    """Check the Pythons of this machine, or one installation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path, nargs="?", help="a wheel or an sdist")
    parser.add_argument("--python", action="append", help="an interpreter; repeat for more")
    parser.add_argument("--bin", type=Path, help="an installation with the extras gateway and mcp")
    given = parser.parse_args()
    if given.bin is not None:
        return 1 if check(given.bin, None) else 0
    if given.package is None:
        parser.error("name a wheel or an sdist, or an installation with --bin")
    pythons = [Path(shutil.which(one) or one) for one in given.python] if given.python else list(found_pythons())
    bad = 0
    for python in pythons:
        shown = subprocess.run([python, "-VV"], capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603
        print(shown, flush=True)
        with tempfile.TemporaryDirectory() as name:
            bad += check(installed(python, given.package, Path(name) / "empty"), given.package)
    return 1 if bad or not pythons else 0


if __name__ == "__main__":
    sys.exit(main())
