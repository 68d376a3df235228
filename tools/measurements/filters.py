"""Which rows are not shipped, and why? A name and a sentence for every filter, and those that need only the raw row."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from measurements.names import model_name
from penstock.catalog import model_ids

Raw = Mapping[str, str]

UNCERTAIN: Final = {
    "gpu_label_ambiguous": "gpu_ambiguous",
    "gpu_name_not_stated": "gpu_unnamed",
    "gpu_label_MI300X_unconfirmed": "gpu_ambiguous",
}
DRAFTED: Final = "speculative_decoding_mtp"
PLUGIN: Final = "engine_with_ATOM_model_plugin"
_READ_FLAGS: Final = {*UNCERTAIN, DRAFTED, PLUGIN}
"""Flags that a field of the row takes up."""
_OPEN_LOOPS: Final = {"online_request_rate", "online_burst"}

WHY: Final = {
    "mlperf": "MLPerf states neither the input length nor the split of a run. Those of v6.1 are in its own table.",
    "flagged": "Its collector doubts it: interpolated, a typo, an unsuitable checkpoint, patched or first-week "
    "software, lengths, counts or kind of tokens unstated, one phase only.",
    "prefill_only": "A prompt alone at batch one: no time per output token.",
    "open_loop": "Requests sent at a rate or all at once: how many ran together is not stated.",
    "unknown_model": "The catalog has no such model (GPT-J, Kimi-K2.7).",
    "unknown_accelerator": "The catalog has no such accelerator (a CPU, a TPU).",
    "weights_unstated": "The source does not say in which format the weights are stored.",
    "pipeline": "Pipeline parallelism is not in the model of a step.",
    "copied": "NVIDIA's gap analysis of Kimi-K2.5 and Qwen3.5 repeats InferenceX runs, rounded and without their days.",
    "split_unstated": "The devices do not add up: a disaggregated deployment counted as one engine, sides without "
    "workers, or attention and experts on different numbers of devices.",
    "partial_ep": "Experts spread over some of the ranks and cut over the others.",
    "accuracy_low": "The answers of the run were wrong too often: GSM8K 0.86 to 0.90 where 0.95 is right, or below "
    "the target of MLPerf.",
    "drafter_changed": "The accuracy runs of the day disagree on how many drafts were accepted, so the drafter of this "
    "run is not known.",
    "slow_outlier": "More than 1.7 times the median of its cell over days: compilation, or a disturbed machine.",
    "rate_contradicts_latency": "The published rate and the published times differ by more than a third.",
    "two_values_published": "The source publishes two values for this path, one twice the other.",
    "gateway": "Measured through the gateway of a production fleet, with a prompt length that was derived.",
    "mixed_system": "MLPerf: accelerators of several kinds in one system.",
    "half_of_others": "MLPerf: half the rate of every other result of the same accelerator.",
    "tokens_unstated": "MLPerf: the rate is in samples per second, and the tokens of a sample are not stated.",
    "filed_twice": "The same run under two ids: same source, day, configuration, load and times.",
    "does_not_fit": "The weights alone are larger than the memory of the devices stated, of an engine or of a side.",
    "faster_than_light": "Quarantined: less time than the bytes at full bandwidth or the FLOPs at peak take at the "
    "load stated. Where a time to first token is given, it mostly shows users waiting in a queue.",
    "queued": "Most users were waiting: the first token took longer than all the others and more than ten seconds, or "
    "the rate times the time of a token says that fewer than half of them ran together.",
}
"""The sentence that data-filters.csv has for each filter, in the order they are tried."""


def flags_of(raw: Raw) -> list[str]:
    """List the flags of a row, without what they say in brackets."""
    return [flag for flag in re.sub(r"\(.*?\)", "", raw["flag"]).split(";") if flag]


def _flagged(raw: Raw) -> bool:
    return not _READ_FLAGS.issuperset(flags_of(raw))


def _copied(raw: Raw) -> bool:
    return raw["source_id"] == "aiconfigurator-silicon" and "_gap_analysis_" in raw["notes"]


_RAW: Final[tuple[tuple[str, Callable[[Raw], bool]], ...]] = (
    ("mlperf", lambda raw: raw["source_id"].startswith("mlperf")),
    ("flagged", _flagged),
    ("prefill_only", lambda raw: raw["scenario"] == "prefill_ttft_bs1"),
    ("open_loop", lambda raw: raw["scenario"] in _OPEN_LOOPS),
    ("unknown_model", lambda raw: model_name(raw["model"]) not in model_ids()),
    ("weights_unstated", lambda raw: not raw["weights_precision"]),
    ("pipeline", lambda raw: raw["pp"] not in {"", "1"}),
    ("copied", _copied),
)


def reason_to_leave(raw: Raw) -> str | None:
    """Name the first filter that drops a raw row, if one does."""
    return next((name for name, drops in _RAW if drops(raw)), None)
