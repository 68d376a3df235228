"""How many endpoints can one cell have? Processor time of a decision, of a report and of a metrics page."""

import argparse
import json
from time import process_time

import numpy as np

from penstock.compiled.library import load
from penstock.emulator.emulated_engine import Totals
from penstock.emulator.metrics_page import EngineState, Observed, vllm_page
from penstock.gateway.picker.fleet_state import SharedTables
from penstock.gateway.picker.picker import EndpointChoice, Picker
from penstock.gateway.picker.request_body import RequestHints, read_body
from penstock.gateway.state.routed_fleet import RoutedClass, RoutedFleet
from penstock.gateway.state.shared_tables import COUNTS, PICKER_STATE, REPORT
from penstock.gateway.telemetry.engine_metrics import read_page
from penstock.routing.records import new_endpoints

SIZES = (10, 30, 100, 300, 1000, 5000)
BODY = json.dumps({"messages": [{"role": "user", "content": "word " * 800}], "model": "m", "max_tokens": 200}).encode()
_MIDDLE = 0.002
"""Seconds between two looks at the reports: the picker's own."""


def fleet_of(count: int) -> RoutedFleet:
    """Make endpoints of two vendors that hold what a request needs."""
    endpoints = new_endpoints(count)
    endpoints["vendor"] = np.arange(count) % 2
    endpoints["kv_tokens"] = endpoints["max_context_tokens"] = 400_000
    endpoints["max_running"], endpoints["step_tokens"] = 256, 8192
    endpoints["step_s"], endpoints["prompt_token_s"], endpoints["usd_per_s"] = 0.01, 1e-5, 1e-3
    return RoutedFleet(
        name="cell",
        addresses=tuple(f"10.{index >> 16}.{index >> 8 & 255}.{index & 255}:8000" for index in range(count)),
        pools=("pool",) * count,
        engines=("vllm",) * count,
        models=("m",),
        served=("m",) * count,
        classes=(RoutedClass(name="chat", model="m", input_tokens=1000, output_tokens=200, ttft_s=1.0, tpot_s=0.05),),
        endpoints=endpoints,
    )


def decision_us(count: int, times: int) -> tuple[float, float]:
    """Return the processor time of a decision with its end, and of taking one report in."""
    fleet = fleet_of(count)
    tables = SharedTables(
        reports=np.zeros(count, REPORT), counts=np.zeros((1, count), COUNTS), states=np.zeros(1, PICKER_STATE)
    )
    now = [1000.0]
    picker = Picker(fleet, tables, 0, lambda: now[0])
    begun = process_time()
    for _ in range(times):
        named = picker.decide(read_body(BODY), BODY, RequestHints())
        if isinstance(named, EndpointChoice):
            picker.state.end(named.ticket, "", 200, "-", 1)
        now[0] += _MIDDLE / 10
    decided = (process_time() - begun) / times * 1e6
    tables.reports["healthy"] = 1
    rounds = max(1, 2000 // count)
    begun = process_time()
    for _ in range(rounds):
        now[0] += 1.0
        tables.reports["sequence"] += 2
        tables.reports["reported_s"] = now[0]
        picker.state.tick()
    return decided, (process_time() - begun) / rounds / count * 1e6


def page_us(times: int) -> tuple[float, int]:
    """Return the processor time of reading one page, and its bytes."""
    state = EngineState(
        model="m",
        running=3,
        waiting=2,
        used_blocks=50,
        blocks=20_000,
        block_tokens=16,
        cache_dtype="auto",
        prefix_caching=True,
        totals=Totals(),
        observed=Observed(),
    )
    page = vllm_page(state) + b"# padding of a real page\n" * 1500
    begun = process_time()
    for _ in range(times):
        read_page(page)
    return (process_time() - begun) / times * 1e6, len(page)


def main() -> None:
    """Print what a decision costs, by the number of endpoints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=2000)
    times = parser.parse_args().times
    load()
    decision_us(10, 200)
    print("| endpoints | decision with its end, us | decisions/s per core | one report, us |")
    print("|---|---|---|---|")
    for count in SIZES:
        decided, reported = decision_us(count, times)
        print(f"| {count:,} | {decided:.0f} | {1e6 / decided:,.0f} | {reported:.1f} |", flush=True)
    read, size = page_us(times)
    print(f"\nA metrics page of {size / 1000:.0f} kB is read in {read:.0f} us.")


if __name__ == "__main__":
    main()
