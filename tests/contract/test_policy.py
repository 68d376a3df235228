"""The decisions of the policy on one trace, through the module inside Envoy, the ext_proc picker and the simulator."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from contract.recording import Recorder

DOORS = Path(__file__).with_name("policy_doors.py")


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    """Of a process of its own: buckets of tenants depend on the seed of Python's hashes."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run([sys.executable, str(DOORS)], capture_output=True, text=True, check=True, env=environment)
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_doors_decide_as_recorded(report: dict[str, Any], recorded: Recorder) -> None:
    recorded("policy", "decisions", report["decisions"])


@pytest.mark.parametrize("door", ["module", "ext_proc", "simulator"])
def test_trace_reaches_every_kind_of_decision(report: dict[str, Any], door: str) -> None:
    """Otherwise equal doors would say little."""
    decisions = report["decisions"][door]
    assert set(decisions["endpoint"]) == {0, 1, 2, 3, 4, None}
    assert 50 < decisions["endpoint"].count(None) < 300
    assert sum(waited_s > 0 for waited_s in decisions["waited_s"]) > 10
    assert len(set(decisions["retry_after_s"])) > 5
    assert max(tokens or 0 for tokens in decisions["cached_tokens"]) > 16_000
