"""Writes reference pages, schemas and tables of KV caches from the real thing. `--check` fails on stale ones."""

import statistics
import sys
from pathlib import Path
from typing import Any

from penstock.api.document_schemas import DOCUMENTS, json_schema
from penstock.catalog import load_accelerator
from penstock.report.drawing.plain_json import to_json

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from reference_pages import reference_pages
from result_tables import RESULTS, csv_text

from published_logs import LOGS, error, predicted, tokens_as_logged

DOCS = Path(__file__).resolve().parent.parent / "docs"


def memory_tables() -> dict[Path, str]:
    """Every published log beside what `fit` says, and the errors.

    The activation formula was fitted to the H100 logs of vLLM 0.19 (and its older sampler to one log of 0.15); the
    other rows are held out from that. The runtime medians per vendor were set with all logs in view, and what
    DeepSeek-V4 takes on top with its own.
    """
    vendors = {log["accelerator"]: load_accelerator(log["accelerator"]).vendor for log in LOGS}
    fitted = [log for log in LOGS if log["accelerator"] == "h100_sxm" and log["version"].startswith("0.19")]
    groups = {
        "all": LOGS,
        "NVIDIA": [log for log in LOGS if vendors[log["accelerator"]] == "nvidia"],
        "AMD": [log for log in LOGS if vendors[log["accelerator"]] == "amd"],
        "fitted (H100, vLLM 0.19)": fitted,
        "held out": [log for log in LOGS if log not in fitted],
    }
    head = "| logs | n | median | mean | p90 | within 8% | signed median | inside P10-P90 |\n|---|"
    summary = [head, *(_error_row(name, logs) for name, logs in groups.items())]
    lines = ["| model | on | engine | logged tokens | predicted | error | note |", "|---|"]
    for log in LOGS:
        split = f"tp{log['tp']}" + (f" pp{log['pp']}" if "pp" in log else "")
        memory = f" ({log['device_gib']:g} GiB)" if "device_gib" in log else ""
        weights = f" {log['weights']}" if "weights" in log else ""
        cache = ", fp8 KV" if "kv" in log else ""
        lines.append(
            f"| {log['model']}{weights}{cache} | {log['accelerator']}{memory} {split} "
            f"| {log['engine']} {log['version']} "
            f"| [{log['kv_tokens']:,}]({log['url']}) | {tokens_as_logged(predicted(log)):,} | {error(log):+.1%} "
            f"| {log.get('note', '')} |"
        )
    return {
        RESULTS / "kv-cache-summary.csv": csv_text("\n".join(summary)),
        RESULTS / "kv-cache-logs.csv": csv_text("\n".join(lines)),
    }


def _error_row(name: str, logs: list[dict[str, Any]]) -> str:
    off = [error(log) for log in logs]
    sizes = sorted(abs(value) for value in off)
    inside = 0
    for log in logs:
        result = predicted(log)
        if result.capacity is not None and result.capacity.tokens:
            scale = tokens_as_logged(result) / result.capacity.tokens
            inside += result.capacity.low_tokens * scale <= log["kv_tokens"] <= result.capacity.high_tokens * scale
    within = sum(1 for size in sizes if size <= 0.08)
    return (
        f"| {name} | {len(logs)} | {statistics.median(sizes):.1%} | {statistics.fmean(sizes):.1%} "
        f"| {sizes[int(0.9 * len(sizes))]:.1%} | {within} | {statistics.median(off):+.1%} | {inside / len(logs):.0%} |"
    )


def main() -> int:
    """Write the files, or check them."""
    wanted = {
        **memory_tables(),
        **reference_pages(),
        **{
            DOCS / "schemas" / f"{name.replace('/', '-')}.json": to_json(json_schema(name)) + "\n" for name in DOCUMENTS
        },
    }
    stale = [path for path, text in wanted.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv:
        for path in stale:
            print(f"{path.relative_to(DOCS.parent)} is out of date; run `make docs`", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted[path], encoding="utf-8")
    print(f"{len(stale)} of {len(wanted)} files written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
