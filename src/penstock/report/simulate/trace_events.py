"""Writes the engine steps of a run as trace events, for ui.perfetto.dev and chrome://tracing."""

import json

from penstock.simulation.outcome import Outcome

_US = 1e6


def trace_events(outcome: Outcome, replica: int = 0) -> str:
    """Write the logged steps of one replica.

    Each step has its kind, its duration, and counters of the queue and the KV cache.
    """
    events: list[dict[str, object]] = [
        {"ph": "M", "pid": 1, "tid": 1, "name": "process_name", "args": {"name": f"replica {replica}"}},
        {"ph": "M", "pid": 1, "tid": 1, "name": "thread_name", "args": {"name": "engine steps"}},
    ]
    for step in outcome.log[outcome.log["replica"] == replica]:
        start_us, prompt, decodes = float(step["start_s"]) * _US, int(step["prefill_tokens"]), int(step["decodes"])
        steps = int(step["steps"])
        kind = "prefill" if not decodes else "mixed" if prompt else "decode"
        events.append(
            {
                "ph": "X",
                "pid": 1,
                "tid": 1,
                "name": kind if steps == 1 else f"{kind} x{steps}",
                "cat": kind,
                "ts": start_us,
                "dur": float(step["seconds"]) * _US,
                "args": {"steps": steps, "decodes": decodes, "prompt_tokens": prompt},
            }
        )
        counters = {
            "batch": {"decodes": decodes},
            "queue": {"waiting": int(step["waiting"])},
            "KV blocks": {"used": int(step["used_blocks"])},
        }
        events += [
            {"ph": "C", "pid": 1, "name": name, "ts": start_us, "args": values} for name, values in counters.items()
        ]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})
