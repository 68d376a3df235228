"""Reconstructs facts that the result files of benchmarks leave out: the settings, and whether times are medians."""

from dataclasses import dataclass, replace
from datetime import date
from typing import Final, Literal

import numpy as np

from penstock.catalog.measurement import Measurement
from penstock.performance.step.prompt_queue import DRAWN, LoopTimes

_NOMINAL: Final = 0.9
"""Ratio of the mean to the nominal token length in InferenceX, which draws lengths from 0.8 to 1 times the nominal
length."""
_ROUNDED: Final = 0.02
"""Largest distance of a nominal length from a multiple of 1,024 tokens, in multiples."""
_LONG_TOKENS: Final = 4096
_MANY: Final = 16
"""With at least this number of users, InferenceX's SGLang scripts poll for new requests every 30 steps instead of
10."""
_DELAYED_FROM: Final = date(2026, 1, 29)
"""Date of InferenceX pull request 594, which introduced delayed batching for DeepSeek-R1 in fp8 on B200."""


_SMALL: Final = ("h100_sxm", "h100_pcie", "a100_80gb_sxm", "a100_80gb_pcie")
"""Accelerators with less than 90 GB."""
_PROMPTS_FIRST: Final = frozenset({"sglang", "sglang-atom", "atom"})
_SCHEDULES_AHEAD: Final = frozenset({"vllm", "vllm-atom"})
_AHEAD_FROM: Final = date(2026, 1, 1)
"""Date around which vLLM 0.14 made it the default to schedule one step ahead."""

Statistic = Literal["mean", "median"]
"""Statistic over the requests of a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """How a benchmark sends its requests, and which statistic of the times to first token it publishes.

    All users send their first request at once. After that, a new request starts whenever a running request ends.
    """

    statistic: Statistic = "mean"
    requests_per_user: int = 10
    """Number of requests that each user sends in one run. InferenceX sets `--num-prompts $(( CONC * 10 ))`."""
    length_spread: float = DRAWN
    """Largest deviation of a token length from the mean, as a fraction of the mean."""

    def first_token_s(self, times: LoopTimes) -> float:
        """Return the published statistic of the times to first token of a run."""
        return float(np.median(times.ttft_s) if self.statistic == "median" else np.mean(times.ttft_s))


BENCHMARK: Final = Sending()
"""How InferenceX and ATOM send their requests. Times to first token are predicted for such a benchmark."""
_SENDING: Final = {
    "inferencex": Sending(statistic="median"),
    "inferencex-via-aiconfigurator": BENCHMARK,
    "rocm-atom-nightly": BENCHMARK,
    "inferencex-experimental": Sending(statistic="median", length_spread=0.0),
    "sglang-cookbook": Sending(requests_per_user=3, length_spread=0.04),
}
"""How each source sends its requests. SGLang's cookbook publishes medians and states no number of requests. Runs with
one description differ by a factor of seven, as a run of one wave differs from a run of many. The mean over three waves
lies between them."""
_EXACT: Final = Sending(length_spread=0.0)


def sending_of(source: str, input_tokens: float) -> Sending:
    """Return how a source sends its requests.

    InferenceX and ATOM draw lengths from 0.8 to 1 times a nominal length, which is a multiple of 1,024 tokens. Other
    lengths are exact.
    """
    found = _SENDING.get(source, _EXACT)
    nominal = input_tokens / _NOMINAL / 1024
    return (
        replace(found, length_spread=0.0) if found == BENCHMARK and abs(nominal - round(nominal)) > _ROUNDED else found
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Harness:
    """Settings from the scripts of a benchmark that affect the measured time to first token."""

    sending: Sending = BENCHMARK
    batched_tokens: int = 8192
    """Maximum number of prompt tokens that one data-parallel rank of the engine processes in one step."""
    held_steps: float = 0.0
    """Decode steps by which the engine delays a prompt on purpose. On average, SGLang delays a prompt by about half of
    `--scheduler-recv-interval`. TensorRT-LLM sets the delay with `batch_wait_timeout_iters` and
    `attention_dp_config.timeout_iters`."""


def harness_of(row: Measurement) -> Harness:
    """Return the benchmark settings that apply to a row.

    The settings of InferenceX come from the scripts in github.com/SemiAnalysisAI/InferenceX `benchmarks/` at the date
    of the row. Those of ATOM's nightly runs come from `.github/benchmark` in github.com/ROCm/ATOM. SGLang's cookbook
    states the chunk of some runs; the others have SGLang's default for the memory of the device.

    The InferenceX app publishes medians. The file that AIConfigurator ships has means. If a run is in both the app and
    this file, the two times per token are equal and the two times to first token differ. AIConfigurator's own runs
    state no settings, so they get the engines' defaults.
    """
    sending = sending_of(row.source, row.input_tokens)
    if row.requests is not None:
        sending = replace(sending, requests_per_user=max(1, round(row.requests / (row.concurrency or 1.0))))
    if row.chunk_tokens is not None:
        return Harness(sending=sending, batched_tokens=max(1, row.chunk_tokens // row.dp))
    script = _SCRIPTS.get(row.engine, _by_default) if row.source.startswith("inferencex") else _by_default
    tokens, held_steps = script(row)
    return Harness(sending=sending, batched_tokens=tokens, held_steps=held_steps)


def average_step_tokens(row: Measurement) -> int:
    """Return the token budget of one rank with which the average step of a row is counted.

    It only decides over how many steps a prompt is spread. The shipped evidence holds steps that were counted with it.
    """
    if row.chunk_tokens is not None:
        return row.chunk_tokens
    script = _SCRIPTS.get(row.engine) if row.source.startswith("inferencex") else None
    if script is not None:
        return script(row)[0]
    large = row.engine == "atom" or (row.engine == "sglang" and row.accelerator not in _SMALL)
    return 16_384 if large else 8192


def prompts_first(engine: str) -> bool:
    """Return whether an engine processes all waiting prompts before it decodes again."""
    return engine in _PROMPTS_FIRST


def schedules_ahead(engine: str, day: date | None = None) -> bool:
    """Return whether an engine of a day schedules a step before the step before it ends. Without a day, of today."""
    return engine in _SCHEDULES_AHEAD and (day is None or day >= _AHEAD_FROM)


def _by_default(row: Measurement) -> tuple[int, float]:
    if row.engine == "vllm-atom" and row.model.startswith("qwen3-next"):
        return 32_768, 0.0
    # SGLang's default chunk is 16,384 on devices with 160 GB and more.
    large = row.engine == "sglang" and not row.accelerator.startswith("h")
    return (16_384, 0.0) if large or row.engine.endswith("atom") else (8192, 0.0)


def _trtllm(row: Measurement) -> tuple[int, float]:
    users, short = row.concurrency or 1, max(row.input_tokens, row.output_tokens) < _LONG_TOKENS
    if row.model.startswith("deepseek"):
        held = 0
        if row.dp > 1:
            held = 60
        elif row.accelerator == "b200_sxm" and row.weights == "fp8" and short and row.date >= _DELAYED_FROM:
            held = 40 if users >= 64 else 0  # the script's own case
        return max(8192, round(users + row.input_tokens / _NOMINAL) + 127), held
    if row.model.startswith("llama"):
        return 16_384, 20 if short and row.tp < 8 else 0  # the script's own case
    return 20_000, 0


def _sglang(row: Measurement) -> tuple[int, float]:
    users = row.concurrency or 1
    if row.accelerator.startswith("mi"):
        # The scripts set --num-continuous-decode-steps=4. A step takes all prompts at once, except for mxfp4 with long
        # prompts and many users.
        long = row.weights == "mxfp4" and row.input_tokens > _LONG_TOKENS and users > 32
        return (32_768 if long else 196_608), _poll_wait_steps(4)
    if row.accelerator == "h200_sxm":
        return (32_768 if row.model.startswith("deepseek") else 16_384), 0.0
    often = _poll_wait_steps(30 if users >= _MANY else 10)
    if row.model.startswith("deepseek"):
        if row.weights == "fp8":
            return (8192, _poll_wait_steps(10)) if row.tp == 4 else (32_768, often)  # the scripts' own cases
        return 16_384, often
    if row.model.startswith("glm"):
        return 32_768, _poll_wait_steps(10 if row.weights == "nvfp4" else 1)
    return (16_384, _poll_wait_steps(10)) if row.accelerator == "b300_sxm" and row.weights == "fp8" else (32_768, often)


def _poll_wait_steps(every: int) -> float:
    """Return the mean number of steps that a request waits for the next poll, in addition to the running step.

    The result is zero if the engine polls in every step.
    """
    return (every - 1) / 2


_SCRIPTS: Final = {"sglang": _sglang, "trtllm": _trtllm}


_DRAFTED: Final = 3
"""Number of tokens that most of InferenceX's scripts draft per step. SGLang's scripts write 4 for three drafted tokens,
because SGLang also counts the verified token."""


def drafted_tokens(row: Measurement) -> int | None:
    """Return the number of tokens that a row's run drafted per step, as stated or from InferenceX's `*_mtp.sh` scripts.

    The result is zero if the run used no drafts, and None if nothing states the number. MiniMax-M3 uses a separate
    EAGLE-3 drafter. At a few loads, NVFP4 runs of MiniMax-M3 drafted 2, 4 or 6 tokens. The function returns 3 for all
    loads of MiniMax-M3.
    """
    if not row.drafted:
        return 0
    if row.draft_tokens is not None or row.drafted != "mtp":
        return row.draft_tokens
    long = row.input_tokens > _LONG_TOKENS * _NOMINAL
    if row.model.startswith("deepseek-v4"):
        many = long and (row.concurrency or 1) >= 128  # the script's own case
        return 2 if row.engine == "vllm" or (row.engine == "trtllm" and many) else _DRAFTED
    if row.model.startswith("deepseek"):
        if row.engine == "trtllm" and row.dp > 1:
            return 1
        return 2 if row.engine == "sglang" and not row.accelerator.startswith("mi") else _DRAFTED
    return _DRAFTED
