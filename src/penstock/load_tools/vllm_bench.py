"""Reads result files of `vllm bench serve`."""

from datetime import UTC, datetime

from penstock.errors import UnreadableFile
from penstock.load_tools.load_run import CountedBy, LoadRun, RequestRecord, TokenLength
from penstock.load_tools.read_statistics import (
    MILLISECONDS,
    closed_loop_users,
    finite_rate,
    from_first_start,
    latency_of_keys,
    most_in_flight,
    seconds_of_records,
)
from penstock.reading.json_tree import JsonTree

_VERSION_UNKNOWN = (
    "The file does not state vLLM's version. Before 0.33 the first event of an answer counts as the first token, "
    "even if it is empty."
)


def is_vllm_bench(document: JsonTree) -> bool:
    """Return whether a document is a result of `vllm bench serve`."""
    return all(key in document for key in ("endpoint_type", "num_prompts", "total_output_tokens"))


def read_vllm_bench(document: JsonTree) -> LoadRun:
    """Read a result of `vllm bench serve`.

    The duration in the file begins before the first delay of an open loop. The duration is therefore taken from the
    records if the file lists all requests.
    """
    missing = [name for name in ("ttft", "tpot") if f"mean_{name}_ms" not in document]
    if missing:
        raise UnreadableFile(
            f"{document.where}: states no {missing[0].upper()}; repeat `vllm bench serve` with "
            "`--percentile-metrics ttft,tpot,itl,e2el`"
        )
    completed, total_output = document.whole("completed"), document.number("total_output_tokens")
    records = _records(document)
    complete = completed > 0 and len(records) >= completed
    duration_s = seconds_of_records(records) if complete else document.number("duration", low=1e-9)
    rate = finite_rate(document, "request_rate")
    return LoadRun(
        tool="vllm",
        where=document.where,
        duration_s=duration_s,
        completed=completed,
        failed=document.whole("failed") if "failed" in document else document.whole("num_prompts") - completed,
        asked_requests=document.whole("num_prompts"),
        users=closed_loop_users(document, rate),
        asked_rate_per_s=rate,
        most_in_flight=most_in_flight(document, rate),
        input_length=TokenLength(
            mean=document.number("total_input_tokens") / max(1, completed), counted_by=CountedBy.SERVER
        ),
        output_length=TokenLength(mean=total_output / max(1, completed), counted_by=CountedBy.SERVER),
        ttft=latency_of_keys(document, "{}_ttft_ms", MILLISECONDS, median="median"),
        tpot=latency_of_keys(document, "{}_tpot_ms", MILLISECONDS, median="median"),
        request_latency=(
            latency_of_keys(document, "{}_e2el_ms", MILLISECONDS, median="median")
            if "mean_e2el_ms" in document
            else None
        ),
        output_tokens_per_s=total_output / duration_s,
        model=document.text_or_none("model_id"),
        started=_date(document.text_or_none("date")),
        accepted_tokens=document.number_or_none("spec_decode_acceptance_length"),
        records=records,
        cautions=(_VERSION_UNKNOWN,),
    )


def _records(document: JsonTree) -> tuple[RequestRecord, ...]:
    if not all(key in document for key in ("start_times", "input_lens", "output_lens", "ttfts", "itls")):
        return ()
    starts, answers = list(document.at("start_times").items()), list(document.at("itls").items())
    errors = document.find("errors")
    found = []
    for place, (start, gaps) in enumerate(zip(starts, answers, strict=False)):
        if errors is not None and errors.text_or_none(place) is not None:
            continue
        ttft_s = document.number("ttfts", place)
        found.append(
            RequestRecord(
                start_s=start.number(),
                input_tokens=document.whole("input_lens", place),
                output_tokens=document.whole("output_lens", place),
                ttft_s=ttft_s,
                latency_s=(
                    document.number("latencies", place)
                    if document.find("latencies", place) is not None
                    else ttft_s + sum(gap.number() for gap in gaps.items())
                ),
            )
        )
    return from_first_start(found)


def _date(text: str | None) -> datetime | None:
    try:
        return None if text is None else datetime.strptime(text, "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None
