"""Keep a recording of closed loops: `PYTHONPATH=tests python -m engine.keep_loops RECORDED KEPT`.

Every round of the loops to calibrate from is kept. Of the others, the medians of the first round are kept.
"""

import csv
import json
import sys
from pathlib import Path
from typing import Any

from engine.closed_loops import CALIBRATED, DTYPES, HELD_OUT


def keep(recorded: Path, kept: Path) -> None:
    rows = []
    for dtype in DTYPES:
        for loop in CALIBRATED:
            for path in recorded.glob(f"{dtype}-{loop.name}-*.json"):
                (kept / path.name).write_text(f"{json.dumps(_read(path), separators=(',', ':'))}\n", encoding="utf-8")
        for loop in HELD_OUT:
            run = _read(recorded / f"{dtype}-{loop.name}-0.json")
            rows.append(
                {
                    "dtype": dtype,
                    "load": loop.name,
                    "tpot_s": f"{run['median_tpot_ms'] / 1e3:.6f}",
                    "ttft_s": f"{run['median_ttft_ms'] / 1e3:.6f}",
                    "output_tokens_per_s": f"{run['output_throughput']:.3f}",
                    "engine_waited": run["disturbance"]["engine_waited"],
                }
            )
    with (kept / "held_out.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in found.items()}


if __name__ == "__main__":
    keep(Path(sys.argv[1]), Path(sys.argv[2]))
