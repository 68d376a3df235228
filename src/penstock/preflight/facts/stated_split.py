"""Reads the split that a launch command states. vLLM and SGLang define the ranks differently."""

from dataclasses import dataclass
from typing import Final

from penstock.fleet.serving_engines import ENGINES, ServingEngine
from penstock.preflight.facts.situation import Launch

_MAX_DIGITS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedSplit:
    """Numbers of parallel ranks, counted so that the number of devices is tp x pp x dp."""

    tp: int | None
    """Number of tensor parallel ranks. The number is None if the command does not state it."""
    pp: int
    dp: int
    spreads_experts: bool


def stated_split(launch: Launch, engine: ServingEngine) -> StatedSplit:
    """Return the split of a launch.

    In vLLM, the number of devices is the product of tensor, pipeline and data parallel ranks. In SGLang, the number of
    tensor parallel ranks is the number of devices of a pipeline stage. With DP attention, SGLang's data parallel ranks
    are groups of devices of a pipeline stage. Without DP attention, SGLang's data parallel ranks are separate replicas,
    and one replica is checked. With DP attention, ATOM turns its tensor parallel ranks into data parallel ranks.
    TensorRT-LLM states data parallel ranks in a file, which is not read.
    """
    tp, dp = _count(launch.flag("tensor-parallel-size")), _count(launch.flag("data-parallel-size")) or 1
    server = ENGINES[engine].server
    if server == "atom" and launch.flag("enable-dp-attention") is not None and tp is not None:
        tp, dp = 1, tp * dp
    if server == "sglang":
        grouped = launch.flag("enable-dp-attention") is not None and tp is not None and tp % dp == 0
        tp, dp = (tp // dp, dp) if grouped and tp is not None else (tp, 1)
    return StatedSplit(
        tp=tp,
        pp=_count(launch.flag("pipeline-parallel-size")) or 1,
        dp=dp,
        spreads_experts=_spreads(launch, engine),
    )


def _spreads(launch: Launch, engine: ServingEngine) -> bool:
    if ENGINES[engine].server in {"vllm", "atom"}:
        return launch.flag("enable-expert-parallel") is not None
    # An all-to-all backend sets expert ranks to the tensor ranks (server_args.py, read at v0.5.18).
    exchanged = launch.flag("moe-a2a-backend") not in {None, "none"} or launch.flag("enable-deepep-moe") is not None
    return exchanged or (_count(launch.flag("ep-size")) or 1) > 1 or launch.flag("enable-ep-moe") is not None


def _count(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and 0 < len(text) <= _MAX_DIGITS and int(text) else None
