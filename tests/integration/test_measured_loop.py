"""The documented walk: plan, preflight, emulate, bench, calibrate and plan again, on servers slower than predicted."""

import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
import yaml

from ports import free_ports
from stand_in_aiperf import install

pytest.importorskip("httptools", reason='emulating needs the extra: pip install "penstock[gateway]"')

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorials" / "2-bring-up.md"
HIDDEN = 1.5
"""Factor by which the emulated servers are slower than predicted."""


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def rate_of(document: str) -> dict[str, float]:
    """Return the predicted rate of the replica that is measured."""
    candidates = json.loads(document)["candidates"]
    (one,) = (candidate for candidate in candidates if candidate["id"] == "chat h100_sxm tp1 bf16")
    return dict(one["capacities"][0]["requests_per_s"])


class Walk:
    """Runs the commands of the page in a folder. The ports of the page are replaced by free ones."""

    def __init__(self, folder: Path) -> None:
        self.folder, (self.port, self.control) = folder, free_ports(2)
        (folder / "bin").mkdir()
        path = os.pathsep.join((str(install(folder / "bin").parent), os.environ["PATH"]))
        self.environment = {**os.environ, "PATH": path, "COLUMNS": "200"}

    def arguments(self, command: str) -> list[str]:
        words = shlex.split(command.replace("18000", str(self.port)).replace("17999", str(self.control)))
        assert words[0] == "penstock"
        return [sys.executable, "-m", *words]

    def run(self, command: str) -> str:
        done = subprocess.run(
            self.arguments(command), cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def emulate(self, command: str) -> "subprocess.Popen[bytes]":
        started = subprocess.Popen(
            self.arguments(command), cwd=self.folder, env=self.environment, stderr=subprocess.PIPE
        )
        assert started.stderr is not None
        for line in started.stderr:
            if b"are ready" in line:
                break
        slow = json.dumps({"fault": "slow", "times": HIDDEN}).encode()
        with urlopen(Request(f"http://127.0.0.1:{self.control}", slow)) as answer:
            assert answer.status == 200
        return started


@pytest.mark.long
def test_the_walk_of_the_page_finds_the_hidden_speed_and_changes_the_plan(tmp_path: Path) -> None:
    (plan,) = blocks("yaml")
    (tmp_path / "chat.yaml").write_text(plan)
    commands = [line for block in blocks("bash") for line in block.strip().split("\n")]
    first, preflight, emulate, bench, calibrate, again = commands
    walk = Walk(tmp_path)
    planned = rate_of(walk.run(f"{first} --json"))
    walk.run(preflight)
    started = walk.emulate(emulate)
    try:
        time.sleep(0.2)
        measured = walk.run(bench)
    finally:
        started.terminate()
        started.wait(10)
        if started.stderr is not None:
            started.stderr.close()
    assert "nvidia: pass" in measured
    walk.run(calibrate)
    factor = yaml.safe_load((tmp_path / "calibration.yaml").read_text())["runs"][0]["factor"]
    assert factor == pytest.approx(HIDDEN, rel=0.05)
    second = rate_of(walk.run(f"{again} --json"))
    before, after = ((rate["high"] - rate["low"]) / rate["value"] for rate in (planned, second))
    assert 0.7 / HIDDEN < second["value"] / planned["value"] < 1.05 / HIDDEN  # queues grow faster than steps
    assert after < 0.7 * before  # one run says less about 64 users than about its own load
