"""How was a row measured? What a published benchmark did that its result does not say: settings and statistics."""

from dataclasses import dataclass
from typing import Final, Literal

from penstock.catalog.measurement import Measurement

_NOMINAL: Final = 0.9
"""Mean length over nominal, in InferenceX: lengths are drawn from 0.8 to 1 of the nominal one."""
_LONG_TOKENS: Final = 4096
_MANY: Final = 16
"""Users from which InferenceX's SGLang scripts poll for requests less often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Harness:
    """The settings a time to first token depends on, as the scripts of the benchmark give them."""

    statistic: Literal["mean", "median"] = "mean"
    requests_per_user: int = 10
    """InferenceX: `--num-prompts $(( CONC * 10 ))`, all sent at once and then one for each that ends."""
    batched_tokens: int = 8192
    """Prompt tokens the engine takes in one step, on one data-parallel rank."""
    polled_steps: int = 1
    """Decode steps between two looks at the queue: SGLang's `--scheduler-recv-interval`."""

    @property
    def burst_share(self) -> float:
        """Share of a mean that comes from the start, when all users send their first request together."""
        return 1 / self.requests_per_user if self.statistic == "mean" else 0.0


def harness_of(row: Measurement) -> Harness:
    """Return what was set, from github.com/SemiAnalysisAI/InferenceX `benchmarks/` at the rows' dates.

    The app publishes medians; the file that AIConfigurator ships has the means of the same runs (123 rows are in both:
    equal TPOT, different TTFT). AIConfigurator's own runs state nothing, so they get the engines' defaults.
    """
    if row.source == "aiconfigurator-silicon":
        return Harness()
    tokens, polled = _SCRIPTS.get(row.engine, _by_default)(row)
    return Harness(
        statistic="median" if row.source == "inferencex" else "mean", batched_tokens=tokens, polled_steps=polled
    )


def _by_default(row: Measurement) -> tuple[int, int]:
    return (16384, 1) if row.engine == "atom" else (8192, 1)


def _trtllm(row: Measurement) -> tuple[int, int]:
    if row.model.startswith("deepseek"):
        return max(8192, round((row.concurrency or 1) + row.input_tokens / _NOMINAL) + 127), 1
    return (20_000 if row.model.startswith("gpt-oss") else 16_384), 1


def _sglang(row: Measurement) -> tuple[int, int]:
    users = row.concurrency or 1
    if row.accelerator.startswith("mi"):
        # --num-continuous-decode-steps=4; all prompts at once, but for mxfp4 with long prompts and many users.
        long = row.weights == "mxfp4" and row.input_tokens > _LONG_TOKENS and users > 32  # noqa: PLR2004
        return (32_768 if long else 196_608), 4
    polled = 30 if users >= _MANY else 10
    if row.accelerator == "h200_sxm":
        return (32_768 if row.model.startswith("deepseek") else 16_384), 1
    if row.model.startswith("deepseek"):
        if row.weights == "fp8":
            return (8192, 10) if row.tp == 4 else (32_768, polled)  # noqa: PLR2004 - the scripts' own cases
        return 16_384, polled
    if row.model.startswith("glm"):
        return 32_768, 10 if row.weights == "nvfp4" else 1
    return (16_384, 10) if row.accelerator == "b300_sxm" and row.weights == "fp8" else (32_768, polled)


_SCRIPTS: Final = {"sglang": _sglang, "trtllm": _trtllm}
