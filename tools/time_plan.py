"""Print the processor time of `penstock plan` by phase and by kind of work, with an empty and with a warm memory.

`python tools/time_plan.py [PLAN.yaml ...]`; without a plan, the plan of `plan --init` and the shipped one of three
models. Every run is a process of its own, so that imports count, with bytecode as an installed package has it. The
memory is a temporary folder.
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final

PLANS: Final = Path(__file__).resolve().parent.parent / "examples" / "plans"
SHIPPED: Final = (PLANS / "chat-and-agent.yaml", PLANS / "three-models.yaml")
"""The first is also the plan of `penstock plan --init`."""
WORK: Final = {
    "trials of the simulator": ("penstock.simulation.capacity", "trial"),
    "integer programs": ("penstock.planning.optimizer.milp", "Milp._solve_and_check"),
    "predictions of stacks": ("penstock.performance.prediction.serving_stack", "stack_of"),
    "spreads of stacks": ("penstock.performance.similarity.curve", "uncertainty_of"),
    "checks of launches": ("penstock.preflight.pool_check", "check_pool"),
    "resized fleets": ("penstock.planning.optimizer.resize_fleet", "resized_usd"),
}
"""Functions whose calls and processor time are counted, inside the phases."""


class Phases:
    """Processor time of all threads between two reports of progress, by the name of the phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._name, self._since = "imports and inputs", 0.0

    def progress(self, what: str, _done: int, _total: int) -> None:
        """Receive the progress of a task."""
        now = time.process_time()
        self.seconds[self._name] = self.seconds.get(self._name, 0.0) + now - self._since
        self._name, self._since = what.split(":", maxsplit=1)[0].split(" of ", maxsplit=1)[0], now

    def message(self, text: str) -> None:
        """Ignore a message."""


class Work:
    """Calls and processor time of one function, in all threads."""

    def __init__(self, module: str, name: str) -> None:
        self.calls, self.seconds, self._lock = 0, 0.0, threading.Lock()
        *inside, name = name.split(".")
        owner: Any = importlib.import_module(module)
        for part in inside:
            owner = getattr(owner, part)
        plain = getattr(owner, name)
        timed = self._timed(plain)
        setattr(owner, name, timed)
        for other in list(sys.modules.values()):
            if other.__name__.startswith("penstock") and getattr(other, name, None) is plain:
                setattr(other, name, timed)

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - any function
            begun = time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                with self._lock:
                    self.calls, self.seconds = self.calls + 1, self.seconds + time.thread_time() - begun

        return call


def run_plan(file: Path) -> dict[str, Any]:
    """Plan once in this process, and return the seconds and the answer."""
    phases = Phases()
    plan = importlib.import_module("penstock.api.plan").plan
    work = {name: Work(*where) for name, where in WORK.items()}
    answer = plan(file, watch=phases)
    phases.progress("end", 0, 0)
    begun = time.process_time()
    str(answer.document())
    return {
        "total": time.process_time(),
        "phases": {**phases.seconds, "document for --json": time.process_time() - begun},
        "work": {name: (entry.calls, entry.seconds) for name, entry in work.items()},
        "answer": repr(answer),
    }


def main() -> None:
    """Time every plan with an empty memory, and then with the memory of that run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plans", nargs="*", type=Path, default=SHIPPED)
    parser.add_argument("--once", action="store_true", help="plan once in this process, and print JSON")
    asked = parser.parse_args()
    if asked.once:
        print(json.dumps(run_plan(asked.plans[0])))
        return
    for file in asked.plans:
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "XDG_CACHE_HOME": folder, "PENSTOCK_TRIAL_CACHE": "on"}
            environment |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": f"{folder}/bytecode"}
            subprocess.run([sys.executable, "-c", "import penstock.api.plan"], env=environment, check=True)
            command = [sys.executable, __file__, "--once", str(file)]
            printed = (subprocess.run(command, env=environment, check=True, capture_output=True) for _ in range(2))
            runs = [json.loads(entry.stdout) for entry in printed]
        print_runs(file.stem, *runs)


def print_runs(name: str, cold: dict[str, Any], warm: dict[str, Any]) -> None:
    """Print the seconds of two runs side by side."""
    print(f"{name}: {cold['answer']}")
    if warm["answer"] != cold["answer"]:
        print(f"  with a warm memory: {warm['answer']}")
    print(f"  {'processor seconds':44}{'empty memory':>14}{'warm memory':>14}")
    print(f"  {'total':44}{cold['total']:14.1f}{warm['total']:14.1f}")
    for phase in dict.fromkeys((*cold["phases"], *warm["phases"])):
        print(f"    {phase:42}{cold['phases'].get(phase, 0.0):14.2f}{warm['phases'].get(phase, 0.0):14.2f}")
    for kind, (calls, seconds) in cold["work"].items():
        again = warm["work"][kind]
        print(f"  of it {f'{kind} ({calls:,} / {again[0]:,})':38}{seconds:14.2f}{again[1]:14.2f}")


if __name__ == "__main__":
    main()
