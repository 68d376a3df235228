"""Fixtures every test may use: where reference files are, and which `penstock` command is tested."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

REPOSITORY = Path(__file__).resolve().parent.parent
# Property tests hold laws, not times: the first example of a process also loads the compiled library.
# Tests simulate what they assert; those of the cache turn it on.
os.environ["PENSTOCK_TRIAL_CACHE"] = "off"
settings.register_profile("laws", deadline=None)
settings.load_profile("laws")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files from what is printed now")
    parser.addoption(
        "--accept", action="store_true", help="rewrite the recorded answers of tests/contract, and print what changed"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run long tests first: workers that end with short ones end together."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


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
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare text with a stored file; `--update-golden` rewrites it."""

    def check(name: str, text: str) -> None:
        path = REPOSITORY / "tests" / "golden" / name
        shown = "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
        if request.config.getoption("--update-golden"):
            path.write_text(shown, encoding="utf-8")
        assert shown == path.read_text(encoding="utf-8"), f"{name} changed; if meant, run pytest --update-golden"

    return check
