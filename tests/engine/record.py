"""Record a run of the real engine: `PYTHONPATH=tests python -m engine.record steady|overload|lined_up FILE`."""

import os
import sys
from pathlib import Path

from engine.recording import record
from engine.server import Settings, serve
from engine.tiny_llama import Shape
from engine.trace import Trace, conversation

SHAPE = Shape()
ROOMY = Settings(kv_cache_blocks=256)
TIGHT = Settings(kv_cache_blocks=65)


def steady(*, seed: int, parts: int, rate_per_s: float = 6.0) -> list[Trace]:
    """Below what the engine can serve: nobody waits for long."""
    return [conversation(seed=seed + part, requests=60, rate_per_s=rate_per_s) for part in range(parts)]


def overload(*, seed: int, parts: int) -> list[Trace]:
    """Three times what a tight cache can serve: a queue forms and running requests are preempted.

    While there is a queue, preemptions depend on the order of events and hardly on the speed of the machine.
    """
    return [conversation(seed=seed + part, requests=80, rate_per_s=20.0) for part in range(parts)]


def main(kind: str, file: str) -> None:
    settings = ROOMY if kind == "steady" else TIGHT
    traces = steady(seed=1000, parts=8) if kind == "steady" else overload(seed=2000, parts=6)
    with serve(os.environ["PENSTOCK_VLLM"], settings, shape=SHAPE) as server:
        recording = record(server, settings, SHAPE, traces, lined_up=kind == "lined_up")
    recording.write(Path(file))
    sys.stdout.write(f"{file}: the machine's speed moved by up to {recording.unrest_fraction():.0%}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
