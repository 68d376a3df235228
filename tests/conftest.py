"""Fixtures every test may use: where reference files are, and which `penstock` command is tested."""

import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from penstock.cli import root
from per_commit import PerCommit
from sharing_out import ByFile, shared_helper

REPOSITORY = Path(__file__).resolve().parent.parent
# Property tests hold laws, not times: the first example of a process also loads the compiled library.
# Tests simulate what they assert; those of the cache turn it on.
os.environ["PENSTOCK_TRIAL_CACHE"] = "off"
settings.register_profile("laws", deadline=None)
settings.load_profile("laws")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files from what is printed now")
    parser.addoption(
        "--per-commit",
        action="store_true",
        help="skip refits that passed with this data and code, and run others in turn",
    )
    parser.addoption("--record-refits", action="store_true", help="write tests/refits.toml when whole files passed")
    parser.addoption(
        "--accept", action="store_true", help="rewrite the recorded answers of tests/contract, and print what changed"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--per-commit") or config.getoption("--record-refits"):
        config.pluginmanager.register(PerCommit(config), "per_commit")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run long tests first, then files that share answers: workers that end with short ones end together."""
    items.sort(key=lambda item: (item.get_closest_marker("long") is None, not shared_helper(item.nodeid)))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile | None:  # noqa: ANN401 - of xdist
    return ByFile(config, log) if config.getoption("dist") == "loadscope" else None


@pytest.fixture
def shared() -> Path:
    """Reference files kept beside the checkout; CI must have them, anyone else may not."""
    folder = REPOSITORY.parent / "shared"
    if not folder.is_dir():
        if os.environ.get("PENSTOCK_REQUIRE_SHARED"):
            pytest.fail(f"{folder.name} must be beside the checkout when PENSTOCK_REQUIRE_SHARED is set")
        pytest.skip("the reference files beside the checkout are not here")
    return folder


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def penstock_command() -> str:
    """The command of the installed wheel when PENSTOCK_COMMAND names it, else of this checkout."""
    found = shutil.which("penstock", path=str(Path(sys.executable).parent))
    return os.environ.get("PENSTOCK_COMMAND") or found or "penstock"


@pytest.fixture
def penstock(penstock_command: str) -> Run:
    """Run the command as a user would."""

    def run(
        *arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "COLUMNS": "132", "NO_COLOR": "1", "TERM": "dumb", **(env or {})}
        return subprocess.run(
            [penstock_command, *arguments],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env=environment,
            cwd=cwd,
        )

    return run


@pytest.fixture
def penstock_here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command in this process: what it says of a mistake needs no start of its own."""

    def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        with monkeypatch.context() as patched:
            patched.setattr(sys, "argv", ["penstock", *arguments])
            patched.setattr(root, "_prepare_streams", lambda: None)
            patched.setattr(warnings, "formatwarning", warnings.formatwarning)
            patched.chdir(cwd or Path.cwd())
            with pytest.raises(SystemExit) as ended:
                root.main()
        said = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return subprocess.CompletedProcess(arguments, ended.value.code, said.out, said.err)

    return run


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare text with a stored file; `--update-golden` rewrites it."""

    def check(name: str, text: str) -> None:
        path = REPOSITORY / "tests" / "golden" / name
        shown = "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
        if request.config.getoption("--update-golden"):
            path.write_text(shown, encoding="utf-8")
        assert shown == path.read_text(encoding="utf-8"), f"{name} changed; if meant, run pytest --update-golden"

    return check
