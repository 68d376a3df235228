"""Reads result files of genai-bench."""

from re import fullmatch

from penstock.load_tools.load_run import CountedBy, LoadRun, TokenLength
from penstock.load_tools.read_statistics import SCALE_BY_UNIT, latency_of_table
from penstock.reading.json_tree import JsonTree

_SLOW_CLIENT = (
    "genai-bench is the slowest client: in our runs it reported first tokens up to 8% late and rates 4.5% low."
)
_ENGINES = {"vllm": "vllm", "sglang": "sglang"}


def is_genai_bench(document: JsonTree) -> bool:
    """Return whether a document is a result of genai-bench."""
    return document.find("aggregated_metrics", "stats", "ttft") is not None


def read_genai_bench(document: JsonTree, metadata: JsonTree | None = None) -> LoadRun:
    """Read a result of genai-bench. `metadata` is the file `experiment_metadata.json` of the same folder."""
    totals = document.at("aggregated_metrics")
    stats, unit = totals.at("stats"), document.text_or_none("_time_unit") or "s"
    if unit not in SCALE_BY_UNIT:
        raise document.at("_time_unit").error(f"must be one of {', '.join(SCALE_BY_UNIT)}")
    unit_s = SCALE_BY_UNIT[unit]
    asked_input, asked_output = _scenario(totals.text_or_none("scenario"))
    engine = None if metadata is None else metadata.text_or_none("server_engine")
    return LoadRun(
        tool="genai-bench",
        where=document.where,
        tool_version=None if metadata is None else metadata.text_or_none("benchmark_version"),
        duration_s=totals.number("run_duration", low=1e-9),
        completed=totals.whole("num_completed_requests"),
        failed=totals.whole("num_error_requests"),
        users=totals.whole("num_concurrency", low=1),
        input_length=TokenLength(
            mean=stats.number("num_input_tokens", "mean"), counted_by=CountedBy.SERVER, asked=asked_input
        ),
        output_length=TokenLength(
            mean=stats.number("num_output_tokens", "mean"), counted_by=CountedBy.SERVER, asked=asked_output
        ),
        ttft=latency_of_table(stats.at("ttft"), unit_s),
        tpot=latency_of_table(stats.at("tpot"), unit_s),
        request_latency=latency_of_table(stats.at("e2e_latency"), unit_s),
        output_tokens_per_s=totals.number("mean_output_throughput_tokens_per_s"),
        model=None if metadata is None else metadata.text_or_none("api_model_name"),
        engine=None if engine is None else _ENGINES.get(engine.lower(), engine.lower()),
        engine_version=None if metadata is None else metadata.text_or_none("server_version"),
        accelerator=None if metadata is None else metadata.text_or_none("server_gpu_type"),
        devices=None if metadata is None else _devices(metadata),
        cautions=(_SLOW_CLIENT,),
    )


def _devices(metadata: JsonTree) -> int | None:
    """Return the number of accelerators, which the file has as the text that was typed."""
    stated = metadata.text_or_none("server_gpu_count") or ""
    return int(stated) if fullmatch("[0-9]{1,5}", stated) else None


def _scenario(text: str | None) -> tuple[float | None, float | None]:
    """Return the lengths of a fixed scenario such as `D(1024,128)`; None for other scenarios."""
    if text is None or not (text.startswith("D(") and text.endswith(")")):
        return None, None
    try:
        asked_input, asked_output = (float(part) for part in text[2:-1].split(","))
    except ValueError:
        return None, None
    return asked_input, asked_output
