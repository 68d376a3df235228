"""What is in measurements.csv? Tables of TensorRT-LLM and AMD, InferenceX runs, aiconfigurator's sample, others."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date
from typing import Any, Final

from measurements.aiconfigurator import FILE_DAY, Sample
from measurements.filters import DRAFTED, Raw, flags_of, reason_to_leave
from measurements.ledger import Ledger, Left
from measurements.names import inner_engine, model_name, stack_name, weight_format
from measurements.split import Split, inferencex_split, nodes_of
from penstock.catalog.measurement import Measurement

NOMINAL: Final = 0.9
"""Mean length over nominal: InferenceX draws 80 to 100% of a nominal length."""
_RUNS: Final = "inferencex-app-fixtures"
_SAMPLES: Final = ("inferencex-via-aiconfigurator", "aiconfigurator-silicon")
_SCENARIOS: Final = {
    "online_concurrency": "online",
    "online_concurrency_disagg": "disaggregated",
    "offline_static_batch": "static_batch",
    "offline_max_throughput": "saturated",
}
_PD: Final = re.compile(r"disaggregated (\d+)P:(\d+)D, TP(\d+) each")


def read_collected(rows: Sequence[Raw], attention_dp: set[str], ledger: Ledger) -> Iterator[Measurement]:
    """Read every row that no filter drops; `attention_dp` are InferenceX's configurations that replicate attention."""
    samples = Sample(rows, attention_dp)
    for raw in rows:
        reason = reason_to_leave(raw)
        read = None if reason else _read(raw, samples)
        if isinstance(read, Measurement):
            yield read
        else:
            ledger.left.append(
                Left(
                    id=raw["row_id"],
                    source=source_of(raw),
                    accelerator=raw["accelerator"],
                    filter=reason or read or "split_unstated",
                )
            )


def source_of(raw: Raw) -> str:
    """Name the source a row is filed under; blogs are one."""
    if raw["source_id"] == _RUNS:
        return "inferencex"
    return "blogs" if raw["source_id"].startswith("blog-") else raw["source_id"]


def _read(raw: Raw, samples: Sample) -> Measurement | str:
    """Read one row, or name the filter that drops it."""
    if raw["source_id"] == _RUNS:
        return _run(raw)
    if raw["source_id"] in _SAMPLES:
        return _sample(raw, samples)
    if raw["scenario"] == "online_concurrency_disagg":
        return _prefill_decode_ratio(raw)
    return _table(raw)


def base_fields(raw: Raw, *, inferencex: bool) -> dict[str, Any]:
    """Return what every row of this layout has; InferenceX's lengths are nominal."""
    model = model_name(raw["model"], inferencex=inferencex)
    scale = NOMINAL if inferencex else 1.0
    return {
        "id": raw["row_id"],
        "source": source_of(raw),
        "ref": "",
        "scenario": _SCENARIOS[raw["scenario"]],
        "model": model,
        "weights": weight_format(raw["weights_precision"], model, raw["accelerator"]),
        "kv": raw["kv_precision"],
        "accelerator": raw["accelerator"],
        "engine": inner_engine(raw["engine"]),
        "version": raw["engine_version"],
        "date": date.fromisoformat(raw["date"]),
        "concurrency": None if raw["concurrency"] in {"", "max"} else float(raw["concurrency"]),
        "input_tokens": float(raw["input_tokens"]) * scale,
        "output_tokens": float(raw["output_tokens"]) * scale,
        "tpot_s": _seconds(raw["tpot_ms"]),
        "ttft_s": _seconds(raw["ttft_ms"]),
        "output_tokens_per_s": _times(raw["output_tokens_per_s"], 1),
    }


def _seconds(milliseconds: str) -> float | None:
    return float(milliseconds) / 1e3 if milliseconds else None


def _times(amount: str, factor: float) -> float | None:
    return float(amount) * factor if amount else None


def split_fields(split: Split) -> dict[str, Any]:
    """Return the split of one engine as fields of a row."""
    return {"tp": split.tp, "dp": split.dp, "ep": split.ep}


def _run(raw: Raw) -> Measurement | str:
    """Read one dated run of InferenceX; its throughput was multiplied by a device count that is sometimes wrong."""
    noted = _pairs(raw["notes"])
    decode = inferencex_split(raw["tp"], raw["ep"], noted["decode_dpa"])
    values = base_fields(raw, inferencex=True) | split_fields(decode)
    values["ref"] = raw["source"].rsplit("/runs/", 1)[-1]
    values["stack"] = stack_name(raw["engine"])
    values["drafted"] = "mtp" if DRAFTED in flags_of(raw) else ""
    if values["scenario"] == "online":
        values["output_tokens_per_s"] = _times(raw["output_tokens_per_s_per_gpu"], decode.ranks)
        return "partial_ep" if decode.partial else Measurement(**values)
    prefill = inferencex_split(noted["prefill_tp"], noted["prefill_ep"], noted["prefill_dpa"])
    values["prefill"] = prefill.side(int(noted["prefill_workers"]))
    values["decode_workers"] = int(noted["decode_workers"])
    # The published output rate is per decoding device; the total is per device, and whole at these lengths.
    output_share = int(raw["output_tokens"]) / (int(raw["input_tokens"]) + int(raw["output_tokens"]))
    values["output_tokens_per_s"] = _times(raw["total_tokens_per_s"], output_share)
    row = Measurement(**values)
    if row.devices != int(raw["accelerator_count"]):
        return "split_unstated"
    several = noted["multinode"] == "True"
    return replace(row, nodes=nodes_of(row.accelerator, row.devices, several=several))


def _sample(raw: Raw, samples: Sample) -> Measurement | str:
    """Read one row of aiconfigurator's silicon_sample.csv: an InferenceX run, or one of NVIDIA's own."""
    inferencex = raw["source_id"] == _SAMPLES[0]
    split = samples.split_of(raw)
    if split is None:
        return "split_unstated"
    if split.partial:
        return "partial_ep"
    values = base_fields(raw, inferencex=inferencex) | split_fields(split)
    values["ref"] = samples.ref_of(raw)
    values["dated"] = "up_to" if raw["date"] == FILE_DAY else "day"
    values["drafted"] = "mtp" if samples.drafts(raw) else ""
    return Measurement(**values)


def _prefill_decode_ratio(raw: Raw) -> Measurement | str:
    """Read dstack's ratios of prefilling to decoding engines, all split alike."""
    found = _PD.fullmatch(raw["parallel_note"])
    if not found:
        return "split_unstated"
    prefill_workers, decode_workers, ranks = (int(part) for part in found.groups())
    split = Split(ranks=ranks)
    values = base_fields(raw, inferencex=False) | split_fields(split)
    return Measurement(**values, prefill=split.side(prefill_workers), decode_workers=decode_workers)


def _table(raw: Raw) -> Measurement | str:
    """Read a row of a vendor's table, or of a benchmark like it."""
    values = base_fields(raw, inferencex=False)
    dep = raw["parallel_note"].startswith("DEP")
    if not raw["tp"] and not dep:
        return "split_unstated"
    split = (
        Split(ranks=int(raw["dp"]), expert_ranks=int(raw["ep"]), attention_dp=True)
        if dep
        else Split(ranks=int(raw["tp"]))
    )
    if found := re.fullmatch(r"https://github.com/ROCm/vllm/blob/(\w+)/docs/dev-docker/README.md", raw["source"]):
        values["ref"] = found[1]
    # TensorRT-LLM's tables quantise the cache with the weights; so does vLLM with dstack's FP8 checkpoints.
    quantised = raw["source_id"].startswith(("trtllm-", "dstack-")) and values["weights"] != "bf16"
    values["kv"] = raw["kv_precision"] or ("fp8" if quantised else "")
    return Measurement(**values | split_fields(split))


def _pairs(text: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in text.split() if "=" in word)
