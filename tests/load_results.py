"""Result files of real load tools against one emulated endpoint, and what the endpoint sent."""

from pathlib import Path
from typing import Final

from penstock.api.results import load_runs
from penstock.load_tools.load_run import LoadRun

FOLDER: Final = "research/samples"
CLOSED_LOOPS: Final = {
    "vllm": "vllm-bench-0.33.0/c16.json",
    "sglang": "sglang-bench-0.5.23/c16.jsonl",
    "aiperf": "aiperf-0.13.0/c16.json",
    "guidellm": "guidellm-0.8.1/c16.json",
    "inference-perf": "inference-perf-0.7.0/c16",
    "genai-bench": "genai-bench-0.0.5/v16",
    "evalscope": "evalscope-1.14.1/c16",
}
"""One run of 16 users per load tool."""


def sample_run(shared: Path, name: str) -> LoadRun:
    """Read the only run of a sample."""
    (run,) = load_runs(shared / FOLDER / name)
    return run
