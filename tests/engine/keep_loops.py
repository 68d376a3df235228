"""Keep a recording of closed loops: `PYTHONPATH=tests python -m engine.keep_loops RECORDED KEPT`.

The least disturbed round of each load to calibrate from is kept whole. Of the others, the median over rounds and the
range of the time per token are kept.
"""

import csv
import json
import shutil
import sys
from pathlib import Path
from statistics import median
from typing import Any

from engine.closed_loops import CALIBRATED, HELD_OUT, ClosedLoop


def rounds_of(folder: Path, dtype: str, loop: ClosedLoop) -> list[Path]:
    return sorted(folder.glob(f"{dtype}-{loop.name}-*.json"))


def least_disturbed(paths: list[Path]) -> Path:
    return min(paths, key=lambda path: _read(path)["disturbance"]["engine_waited"])


def keep(recorded: Path, kept: Path) -> None:
    rows = []
    for dtype in ("bfloat16", "float32"):
        for loop in CALIBRATED:
            shutil.copy(least_disturbed(rounds_of(recorded, dtype, loop)), kept / f"{dtype}-{loop.name}.json")
        for loop in HELD_OUT:
            runs = [_read(path) for path in rounds_of(recorded, dtype, loop)]
            tpots = [run["mean_tpot_ms"] / 1e3 for run in runs]
            rows.append(
                {
                    "dtype": dtype,
                    "load": loop.name,
                    "tpot_s": f"{median(tpots):.6f}",
                    "ttft_s": f"{median(run['mean_ttft_ms'] / 1e3 for run in runs):.6f}",
                    "output_tokens_per_s": f"{median(run['output_throughput'] for run in runs):.3f}",
                    "rounds": len(runs),
                    "tpot_low_s": f"{min(tpots):.6f}",
                    "tpot_high_s": f"{max(tpots):.6f}",
                    "engine_waited": f"{median(run['disturbance']['engine_waited'] for run in runs):.4f}",
                }
            )
    with (kept / "held_out.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    keep(Path(sys.argv[1]), Path(sys.argv[2]))
