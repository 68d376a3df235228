"""Compares the requests that a launch of vLLM may run at once with the blocks that hold recurrent states."""

import re
from typing import Final

from penstock.fleet.release import Release
from penstock.performance import MemoryFit
from penstock.preflight.facts.situation import Launch

MAX_REQUESTS: Final = "max-num-seqs"
_RAISES_SINCE: Final = Release("0.20.0")
"""First release that refuses to start (resolve_cudagraph_mode_and_sizes in config/compilation.py, read in 0.20.0 to
0.33.0; vllm#38270). 0.18 and 0.19 capture smaller graphs instead."""
_MODE: Final = re.compile(r"""cudagraph_mode["']?\s*[:=]\s*["']?(\w+)""")
_STEP: Final = 8


def too_few_blocks(memory: MemoryFit, launch: Launch) -> tuple[str, bool] | None:
    """Return why vLLM refuses to start with the launch's number of requests, and whether that is certain, or None.

    Graphs of whole decode steps need a block for the states of each request. It is certain if the blocks are too few at
    both ends of the reserves.
    """
    blocks, engine = memory.state_blocks, memory.deployment.engine
    if blocks is None or not memory.fits or engine.release < _RAISES_SINCE or not _captures_whole_steps(launch):
        return None
    requests, certain = engine.max_sequences, engine.max_sequences > blocks.high
    if requests <= blocks.low:
        return None
    default = "" if MAX_REQUESTS in launch.flags else " (the default)"
    safe = safe_requests(memory)
    instead = "" if safe is None else f"; --{MAX_REQUESTS} {safe} starts"
    verb = "exceeds" if certain else "may exceed"
    held = f"the cache's blocks for recurrent states, about {blocks.median:,}"
    return f"--{MAX_REQUESTS} {requests:,}{default} {verb} {held}{instead}", certain


def safe_requests(memory: MemoryFit) -> int | None:
    """Return a number of requests for which there are blocks, or None if there are none.

    There are as many at the P90 of the reserves. If the model fits only by the median estimate, a quarter of the blocks
    is not used.
    """
    if memory.state_blocks is None:
        return None
    held = max(memory.state_blocks.low, memory.state_blocks.median * 3 // 4)
    return (held // _STEP * _STEP or held) or None


def _captures_whole_steps(launch: Launch) -> bool:
    if launch.flag("enforce-eager") is not None:
        return False
    mode = launch.flag("compilation-config.cudagraph_mode", "cc.cudagraph_mode")
    found = _MODE.search(launch.flag("compilation-config", "cc", "O") or "")
    return (mode or (found and found[1]) or "FULL").upper() not in {"PIECEWISE", "NONE"}
