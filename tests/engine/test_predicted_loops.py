"""Six short runs of a real vLLM correct the predictions of other loads: recorded runs, calibrated and predicted again.

Two engines of one model on one core of a CPU, in bfloat16 and in float32, measured with `vllm bench serve`. Rows of
`held_out.csv` are the medians over the rounds of the recording.
"""

import csv
from pathlib import Path

import pytest

from engine.closed_loops import SHAPE
from engine.predicted_loops import Compared, Times, calibrated, compare
from engine.tiny_llama import write_config

RUNS = Path(__file__).resolve().parent.parent / "data" / "vllm_cpu_loops"
DTYPES = ("bfloat16", "float32")


def held_out(dtype: str) -> dict[str, Times]:
    with (RUNS / "held_out.csv").open(encoding="utf-8", newline="") as file:
        return {
            row["load"]: Times(
                tpot_s=float(row["tpot_s"]),
                ttft_s=float(row["ttft_s"]),
                output_tokens_per_s=float(row["output_tokens_per_s"]),
            )
            for row in csv.DictReader(file)
            if row["dtype"] == dtype
        }


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Compared]]:
    folder = tmp_path_factory.mktemp("loops")
    write_config(folder / "model", SHAPE)
    found = {}
    for dtype in DTYPES:
        answer = calibrated(RUNS, dtype, folder / "model")
        assert answer.refused == ()
        assert len(answer.fitted.runs) == 6
        (folder / f"{dtype}.yaml").write_text(answer.text(), encoding="utf-8")
        found[dtype] = compare(RUNS, dtype, folder / "model", folder / f"{dtype}.yaml", held_out(dtype))
    return found
