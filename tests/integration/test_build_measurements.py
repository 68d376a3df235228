"""The shipped rows are what the script makes of the raw files beside the checkout."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.shared, pytest.mark.refit("../shared/data", "tools/build_measurements.py", "tools/results")]
REPOSITORY = Path(__file__).resolve().parents[2]


def test_every_shipped_row_is_built_from_the_raw_files(shared: Path) -> None:
    tool = REPOSITORY / "tools" / "build_measurements.py"
    done = subprocess.run(
        [sys.executable, str(tool), "--raw", str(shared / "data"), "--check"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
