"""A small fleet, a picker with its own clock, and the state behind an engine page."""

import json
from typing import Any

import numpy as np

from penstock.emulator.emulated_engine import Totals
from penstock.emulator.metrics_page import EngineState, Observed
from penstock.gateway.picker.fleet_state import SharedTables
from penstock.gateway.picker.picker import Picker
from penstock.gateway.picker.request_body import RequestBody
from penstock.gateway.state.request_outcome import RequestOutcome, outcome_lines, outcome_rows
from penstock.gateway.state.routed_fleet import RoutedClass, RoutedFleet
from penstock.gateway.state.shared_tables import COUNTS, PICKER_STATE, REPORT
from penstock.gateway.telemetry.cost_metrics import SETTLE_EVERY_S
from penstock.gateway.telemetry.usage_metrics import UsageMetrics
from penstock.routing.records import Records, new_endpoints

MODELS = ("a", "b")


def fleet(count: int = 4) -> RoutedFleet:
    endpoints = new_endpoints(count)
    endpoints["vendor"] = [index % 2 for index in range(count)]
    endpoints["serves"] = [1 << (index % 2) for index in range(count)]
    endpoints["kv_tokens"] = endpoints["max_context_tokens"] = 100_000
    endpoints["max_running"], endpoints["step_tokens"] = 64, 8192
    endpoints["step_s"], endpoints["prompt_token_s"] = 0.01, 1e-5
    return RoutedFleet(
        name="test",
        addresses=tuple(f"10.0.0.{index}:8000" for index in range(count)),
        pools=tuple("p" for _ in range(count)),
        engines=tuple("vllm" for _ in range(count)),
        models=MODELS,
        served=tuple(MODELS[index % 2] for index in range(count)),
        classes=tuple(
            RoutedClass(name="chat", model=model, input_tokens=100, output_tokens=50, ttft_s=1.0, tpot_s=0.05)
            for model in MODELS
        ),
        endpoints=endpoints,
    )


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def picker_of(routed: RoutedFleet, clock: Clock) -> tuple[Picker, SharedTables]:
    count = len(routed.addresses)
    tables = SharedTables(
        reports=np.zeros(count, REPORT), counts=np.zeros((1, count), COUNTS), states=np.zeros(1, PICKER_STATE)
    )
    return Picker(routed, tables, 0, clock), tables


def body_fields(model: str | None = "a", body_bytes: int = 400) -> RequestBody:
    return RequestBody(model=model, limit_tokens=None, stream=True, body_bytes=body_bytes, prefix_from=0)


def report(tables: SharedTables, index: int, clock: Clock, **values: float) -> None:
    row = tables.reports[index]
    row["healthy"], row["reported_s"] = 1, clock.now_s
    for name, value in values.items():
        row[name] = value
    row["sequence"] += 2


def state(**more: int) -> EngineState:
    observed = Observed()
    observed.ttft_s.add(0.5, 4)
    observed.itl_s.add(0.02, 100)
    observed.output_tokens.add(25, 4)
    totals = Totals(prompt_tokens=4000, output_tokens=100)
    sizes = {"running": 3, "waiting": 2, "used_blocks": 50, "blocks": 200, "block_tokens": 16} | more
    return EngineState(model="m", totals=totals, observed=observed, cache_dtype="auto", prefix_caching=True, **sizes)


def outcome(**fields: object) -> RequestOutcome:
    """A stream of tenant `search` that ended well after a second."""
    usual: dict[str, Any] = {
        "ended_unix_s": 11.0,
        "duration_s": 1.0,
        "waited_s": 0.0,
        "ttft_s": 0.25,
        "tenant": "search",
        "model": "a",
        "slo_class": "chat",
        "pool": "p",
        "endpoint": "10.0.0.0:8000",
        "status": 200,
        "failed": False,
        "request_bytes": 400,
        "input_tokens": 100,
        "cached_tokens": 40,
        "output_tokens": 51,
        "response_bytes": 11000,
        "streamed": True,
        "prompt_from": "engine",
        "tokens_from": "engine",
        "kept": True,
    }
    return RequestOutcome(**(usual | fields))


def outcomes_in(rows: Records) -> list[RequestOutcome]:
    """The outcomes in an array of `OUTCOME`, as they are written."""
    return [RequestOutcome.from_json(json.loads(line)) for line in outcome_lines(rows)]


def usage_of_one(routed: RoutedFleet, **fields: object) -> UsageMetrics:
    """Metrics of one request that ended a second after it was sent, settled."""
    usage = UsageMetrics(now_s=10.0)
    usage.use(routed)
    usage.add(outcome_rows([outcome(**fields)]))
    usage.look(10.0 + SETTLE_EVERY_S, {})
    return usage
