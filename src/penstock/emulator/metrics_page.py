"""Writes a metrics page with the metric names of vLLM 0.32 or SGLang 0.5.23."""

from dataclasses import dataclass, field
from typing import Final

from penstock.emulator.emulated_engine import Totals
from penstock.prometheus_text import Histogram, histogram_lines, metric_lines, write_labels, write_page

_SECONDS: Final = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0),
    *(2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_TOKEN_SECONDS: Final = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0)
_TOKENS: Final = tuple(float(digit * 10**power) for power in range(6) for digit in (1, 2, 5))


@dataclass(slots=True)
class Observed:
    """Latencies and lengths of the requests of one endpoint, and the number of ended requests by finish reason."""

    ttft_s: Histogram = field(default_factory=lambda: Histogram(_SECONDS))
    itl_s: Histogram = field(default_factory=lambda: Histogram(_TOKEN_SECONDS))
    e2e_s: Histogram = field(default_factory=lambda: Histogram(_SECONDS))
    queue_s: Histogram = field(default_factory=lambda: Histogram(_SECONDS))
    input_tokens: Histogram = field(default_factory=lambda: Histogram(_TOKENS))
    output_tokens: Histogram = field(default_factory=lambda: Histogram(_TOKENS))
    ended: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("stop", "length", "abort", "error"), 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineState:
    """State of an engine at one moment."""

    model: str
    running: int
    waiting: int
    used_blocks: int
    blocks: int
    block_tokens: int
    cache_dtype: str
    prefix_caching: bool
    drafted_tokens: int = 0
    """Tokens drafted per step. As in vLLM, counters of drafts exist only if the engine drafts."""
    totals: Totals
    observed: Observed


def vllm_page(state: EngineState) -> bytes:
    """Return the metrics page in vLLM's form. As in vLLM, `kv_cache_usage_perc` is a fraction despite its name."""
    model = state.model
    labels = write_labels({"engine": "0", "model_name": model})
    totals, observed = state.totals, state.observed
    metrics = {
        "num_requests_running": state.running,
        "num_requests_waiting": state.waiting,
        "kv_cache_usage_perc": state.used_blocks / state.blocks,
        "prefix_cache_queries_total": totals.looked_up_tokens,
        "prefix_cache_hits_total": totals.hit_tokens,
        "num_preemptions_total": totals.preemptions,
        "prompt_tokens_total": totals.prompt_tokens,
        "generation_tokens_total": totals.output_tokens,
    }
    if state.drafted_tokens:
        metrics |= {"spec_decode_num_drafts_total": 0, "spec_decode_num_draft_tokens_total": 0}
    lines = []
    for name, value in metrics.items():
        lines += metric_lines(f"vllm:{name}", [(labels, value)])
    ended = [
        (write_labels({"engine": "0", "finished_reason": reason, "model_name": model}), count)
        for reason, count in observed.ended.items()
    ]
    lines += metric_lines("vllm:request_success_total", ended)
    for name, histogram in {
        "time_to_first_token_seconds": observed.ttft_s,
        "inter_token_latency_seconds": observed.itl_s,
        "e2e_request_latency_seconds": observed.e2e_s,
        "request_queue_time_seconds": observed.queue_s,
        "request_prompt_tokens": observed.input_tokens,
        "request_generation_tokens": observed.output_tokens,
    }.items():
        lines += histogram_lines(f"vllm:{name}", [(labels, histogram)])
    size, blocks = state.block_tokens, state.blocks
    config = {
        "block_size": str(size),
        "cache_dtype": state.cache_dtype,
        "enable_prefix_caching": str(state.prefix_caching),
        "engine": "0",
        "kv_cache_size_tokens": str(size * blocks),
        "num_gpu_blocks": str(blocks),
    }
    return write_page([*lines, *metric_lines("vllm:cache_config_info", [(write_labels(config), 1)])])


def sglang_page(state: EngineState) -> bytes:
    """Return the metrics page in SGLang's form."""
    short = write_labels({"model_name": state.model})
    labels = f'engine_type="unified",{short},moe_ep_rank="0",pp_rank="0",tp_rank="0"'
    size, totals, observed = state.block_tokens, state.totals, state.observed
    used, capacity = state.used_blocks * size, state.blocks * size
    hits = totals.hit_tokens / totals.looked_up_tokens if totals.looked_up_tokens else 0.0
    lines = []
    for name, value in {
        "num_running_reqs": state.running,
        "num_queue_reqs": state.waiting,
        "token_usage": used / capacity,
        "num_used_tokens": used,
        "kv_used_tokens": used,
        "kv_available_tokens": capacity - used,
        "kv_evictable_tokens": 0,
        "max_total_num_tokens": capacity,
        "page_size": size,
        "num_pages": state.blocks,
        "cache_hit_rate": hits,
    }.items():
        lines += metric_lines(f"sglang:{name}", [(labels, value)])
    for name, value in {"prompt_tokens": totals.prompt_tokens, "generation_tokens": totals.output_tokens}.items():
        lines += metric_lines(f"sglang:{name}_total", [(short, value)])
    for name, histogram in {
        "time_to_first_token_seconds": observed.ttft_s,
        "inter_token_latency_seconds": observed.itl_s,
        "e2e_request_latency_seconds": observed.e2e_s,
    }.items():
        lines += histogram_lines(f"sglang:{name}", [(short, histogram)])
    return write_page(lines)
