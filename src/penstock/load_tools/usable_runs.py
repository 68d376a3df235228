"""Decides whether a run can correct a prediction: a run that was disturbed is refused with the reason."""

from collections.abc import Iterator
from math import sqrt
from typing import Final

from penstock.load_tools.load_run import CountedBy, LoadRun

_MAX_FAILED_FRACTION: Final = 0.01
_MAX_LENGTH_ERROR: Final = 0.05
_MAX_LATENESS: Final = 0.1
"""Mean lateness of the load tool as a fraction of the mean gap between requests."""
_MAX_CACHED_FRACTION: Final = 0.05
_MIN_COMPLETED_FRACTION: Final = 0.99
_RATE_SIGMAS: Final = 4
"""Random gaps make the rate of n arrivals vary by 1 / sqrt(n); a rate four times that below the asked one is late."""
_MIN_TPOT_S: Final = 1e-4
_MIN_TTFT_S: Final = 1e-4
_MIN_TOKENS: Final = 1.5
"""Mean tokens of an answer above which TPOT is defined for most answers."""
_MAX_TIME_RATIO: Final = 1.3
"""Ratio of times that ought to be equal. Answers of different lengths make means of products differ."""
_MAX_RATE_RATIO: Final = 1.15
_MIN_COMPLETED: Final = 5
"""Requests below which means say little: the first one waits for kernels to be loaded."""
_MIN_ROUNDS: Final = 3
_MIN_BUSY: Final = 0.5
"""Requests in flight per user of a closed loop, as a fraction. The beginning and the end of a run are less busy."""
_MIN_BUSY_ONCE: Final = 0.3
"""The same in fewer rounds, most of which are beginning and end."""
_MAX_NEAR_LIMIT: Final = 0.5
"""Requests in flight as a fraction of the limit at which an open loop waits. With more, some wait."""


def refusals(run: LoadRun, *, cache_is_stated: bool = False) -> tuple[str, ...]:
    """Return the reasons why a run cannot be used, each as a sentence. An empty result means that it can be used.

    `cache_is_stated` says that the prompts of the run share prefixes on purpose.
    """
    found = []
    sent = run.completed + run.failed
    if not run.completed:
        return ("No request was answered.",)
    if run.completed < _MIN_COMPLETED:
        found.append(
            f"Only {run.completed} requests were answered; their times say little. Send at least ten per user."
        )
    if run.failed > _MAX_FAILED_FRACTION * sent:
        found.append(f"{run.failed} of {sent} requests failed; the answered ones had less load than was asked for.")
    asked = run.asked_requests
    if run.stopped_early or (asked is not None and sent < _MIN_COMPLETED_FRACTION * asked):
        share = "" if asked is None else f" after {sent} of {asked} requests"
        found.append(f"The run ended early{share}; repeat it to the end.")
    output = run.output_length
    if _differs(output.mean, output.asked):
        found.append(
            f"Answers had {output.mean:.0f} tokens, not the {output.asked:.0f} that were asked for; "
            "let the server ignore the end of the text (ignore_eos) and repeat the run."
        )
    if run.lateness_s is not None and run.asked_rate_per_s is not None:
        gap_s = 1.0 / run.asked_rate_per_s
        if run.lateness_s > _MAX_LATENESS * gap_s:
            found.append(
                f"The load tool sent requests {run.lateness_s * 1e3:.0f} ms late on average, at a gap of "
                f"{gap_s * 1e3:.0f} ms; give it more processor time."
            )
    found += [*_slow_arrivals(run), *_unknown_arrivals(run), *contradictions(run)]
    cached = run.cached_prompt_fraction
    if cached is not None and cached > _MAX_CACHED_FRACTION and not cache_is_stated:
        found.append(
            f"{cached:.0%} of the prompt tokens came from the prefix cache; use a fresh seed, or state the cache."
        )
    return tuple(found)


def _slow_arrivals(run: LoadRun) -> Iterator[str]:
    """Yield a reason if an open loop applied less load than random gaps explain."""
    asked = run.asked_rate_per_s
    applied = run.applied_rate_per_s
    if asked is not None and not run.closed_loop and applied * (1 + _RATE_SIGMAS / sqrt(run.completed)) < asked:
        yield (
            f"Requests arrived at {applied:.3g} per second, not at the {asked:.3g} that were asked for; "
            "the load tool was late."
        )


def _unknown_arrivals(run: LoadRun) -> Iterator[str]:
    """Yield a reason if an open loop had to wait at its limit, so that its rate does not say when requests arrived."""
    limit, busy = run.most_in_flight, run.requests_per_s * _whole_s(run)
    if limit is not None and not run.has_all_records and busy > _MAX_NEAR_LIMIT * limit:
        yield (
            f"At most {limit} requests were in flight ({busy:.3g} on average), so they did not arrive at the rate, and "
            "the file lists no starts; let the load tool list them (`--save-detailed`), or state a rate or users only."
        )


def contradictions(run: LoadRun) -> Iterator[str]:
    """Yield the figures of a run that cannot all be true."""
    tokens = run.output_length.mean
    if tokens > _MIN_TOKENS and run.tpot.mean_s < _MIN_TPOT_S:
        yield f"The TPOT of {run.tpot.mean_s * 1e3:.2g} ms is below that of any server; check the unit in the file."
        return
    if run.ttft.mean_s < _MIN_TTFT_S or tokens < 1:
        yield f"Answers had {tokens:.3g} tokens and a TTFT of {run.ttft.mean_s * 1e3:.2g} ms, which no server has."
        return
    whole_s = _whole_s(run)
    stated_s = None if run.request_latency is None else run.request_latency.mean_s
    if stated_s is not None and not 1 / _MAX_TIME_RATIO <= stated_s / whole_s <= _MAX_TIME_RATIO:
        yield (
            f"A request took {stated_s:.3g} s, but TTFT and {tokens:.0f} tokens take {whole_s:.3g} s; "
            "the times of the file contradict each other."
        )
    rate = run.completed * tokens / run.duration_s
    if not 1 / _MAX_RATE_RATIO <= run.output_tokens_per_s / rate <= _MAX_RATE_RATIO:
        yield (
            f"The file states {run.output_tokens_per_s:,.0f} output tokens/s, but its tokens and its duration give "
            f"{rate:,.0f}."
        )
    if run.users is not None:
        busy = run.requests_per_s * whole_s
        least = _MIN_BUSY if run.completed >= _MIN_ROUNDS * run.users else _MIN_BUSY_ONCE
        if not least * run.users <= busy <= _MAX_TIME_RATIO * run.users:
            yield (
                f"{run.users} users had {busy:.3g} requests in flight on average; "
                "the times and the duration of the file contradict each other."
            )


def _whole_s(run: LoadRun) -> float:
    """Return the mean duration of a request by its TTFT and TPOT."""
    return run.ttft.mean_s + max(0.0, run.output_length.mean - 1) * run.tpot.mean_s


def missing_facts(run: LoadRun) -> tuple[str, ...]:
    """Return what the file does not say and the user must state, in the words of the command's options."""
    missing = ["the weights' precision", "the KV cache's dtype", "drafting", "the parallelism"]
    if run.engine is None:
        missing.append("the engine")
    if run.engine_version is None:
        missing.append("the engine's version")
    if run.cached_prompt_fraction is None:
        missing.append("whether prefixes were cached")
    if run.tool_version is None:
        missing.append("the load tool's version")
    if run.input_length.counted_by is not CountedBy.SERVER:
        missing.append("the prompt tokens that the server counted")
    return tuple(missing)


def _differs(served: float, asked: float | None) -> bool:
    return asked is not None and asked > 0 and abs(served / asked - 1) > _MAX_LENGTH_ERROR
