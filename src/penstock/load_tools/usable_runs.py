"""Decides whether a run can correct a prediction: a run that was disturbed is refused with the reason."""

from typing import Final

from penstock.load_tools.load_run import CountedBy, LoadRun

_MAX_FAILED_FRACTION: Final = 0.01
_MAX_LENGTH_ERROR: Final = 0.05
_MAX_LATENESS: Final = 0.1
"""Mean lateness of the load tool as a fraction of the mean gap between requests."""
_MAX_CACHED_FRACTION: Final = 0.05
_MIN_COMPLETED_FRACTION: Final = 0.99


def refusals(run: LoadRun, *, cache_is_stated: bool = False) -> tuple[str, ...]:
    """Return the reasons why a run cannot be used, each as a sentence. An empty result means that it can be used.

    `cache_is_stated` says that the prompts of the run share prefixes on purpose.
    """
    found = []
    sent = run.completed + run.failed
    if not run.completed:
        return ("No request was answered.",)
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
    cached = run.cached_prompt_fraction
    if cached is not None and cached > _MAX_CACHED_FRACTION and not cache_is_stated:
        found.append(
            f"{cached:.0%} of the prompt tokens came from the prefix cache; use a fresh seed, or state the cache."
        )
    return tuple(found)


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
