"""A machine where nothing can be written, such as a container with a read-only root, simulates without waiting."""

import os
import resource
import shutil
import subprocess

import pytest

SANDBOX = ("bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-net")
MAX_CPU_S = 3.0


def _has_sandbox() -> bool:
    tried = shutil.which("bwrap") and subprocess.run([*SANDBOX, "true"], capture_output=True, check=False).returncode
    return tried == 0


@pytest.mark.wheel
@pytest.mark.skipif(not _has_sandbox(), reason="no bubblewrap, or it may not unshare")
def test_simulate_compiles_nothing_where_nothing_can_be_written(penstock_command: str) -> None:
    arguments = ("simulate", "llama-3.1-8b", "--on", "h100", "--rate", "1", "--requests", "100")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    environment["HOME"] = "/nonexistent"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [*SANDBOX, penstock_command, *arguments], capture_output=True, text=True, check=False, env=environment
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    assert "TTFT p50" in done.stdout
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < MAX_CPU_S
