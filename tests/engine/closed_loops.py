"""Which closed loops does `vllm bench serve` run against a real engine? Six to calibrate from, and others to predict.

Record them: `PYTHONPATH=tests python -m engine.closed_loops FOLDER [ROUNDS]`.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from engine.server import Load, Server, Settings, environment, serve
from engine.tiny_llama import Shape

SHAPE: Final = Shape()
DTYPES: Final = ("bfloat16", "float32")
RANGE_RATIO: Final = 1 / 9
"""Lengths are drawn within this fraction of the mean, as in the benchmarks whose TTFT `penstock predict` states."""
_REQUESTS_PER_USER: Final = 10
_FEWEST_REQUESTS: Final = 10
_KEPT: Final = (
    *("date", "endpoint_type", "backend", "model_id", "num_prompts", "request_rate", "max_concurrency", "duration"),
    *("completed", "failed", "total_input_tokens", "total_output_tokens", "output_throughput"),
    *("mean_ttft_ms", "median_ttft_ms", "mean_tpot_ms", "median_tpot_ms"),
)
_DETAILS: Final = ("start_times", "input_lens", "output_lens", "ttfts", "itls")


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """Users who send their next request when the last one is answered, with mean lengths."""

    users: int
    input_tokens: int
    output_tokens: int

    @property
    def name(self) -> str:
        return f"u{self.users}-{self.input_tokens}-{self.output_tokens}"

    @property
    def requests(self) -> int:
        return max(_FEWEST_REQUESTS, _REQUESTS_PER_USER * self.users)


CALIBRATED: Final = tuple(
    ClosedLoop(*load) for load in ((1, 64, 64), (1, 512, 32), (4, 128, 64), (8, 32, 64), (8, 256, 32), (16, 64, 32))
)
HELD_OUT: Final = tuple(
    ClosedLoop(*load)
    for load in (
        *((1, 32, 128), (1, 128, 32), (1, 256, 64), (2, 32, 96), (2, 64, 32), (2, 256, 32), (3, 128, 64), (4, 32, 64)),
        *((4, 64, 128), (4, 256, 32), (6, 128, 32), (8, 64, 64), (8, 128, 64), (12, 32, 32), (12, 64, 48)),
        (16, 128, 32),
    )
)


def settings(dtype: str) -> Settings:
    """Return the flags that vLLM has on a device of this size without flags, and a cache that no load fills."""
    return Settings(
        max_model_len=2048, max_num_seqs=256, max_num_batched_tokens=2048, kv_cache_blocks=1024, dtype=dtype
    )


@contextmanager
def load_tool(python: str) -> Iterator["LoadTool"]:
    """Start the load tool once. It runs on the cores that the engine leaves."""
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(
            [python, str(Path(__file__).with_name("bench_in_turn.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment(Path(folder)),
            text=True,
            start_new_session=True,
        ) as process,
    ):
        yield LoadTool(process, Path(folder))


class LoadTool:
    """A process that runs `vllm bench serve` on command."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self.process = process
        self.folder = folder

    def run(self, server: Server, loop: ClosedLoop, *, seed: int) -> dict[str, Any]:
        """Return the result file. Each seed draws other prompts, so that none is found in the prefix cache."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        flags: dict[str, object] = {
            "--base-url": f"http://127.0.0.1:{server.port}",
            "--model": "tiny",
            "--tokenizer": server.model,
            "--dataset-name": "random",
            "--random-input-len": loop.input_tokens,
            "--random-output-len": loop.output_tokens,
            "--random-range-ratio": f"{RANGE_RATIO:.4f}",
            "--num-prompts": loop.requests,
            "--max-concurrency": loop.users,
            "--seed": seed,
            "--temperature": 0,
            "--result-dir": self.folder,
            "--result-filename": "result.json",
        }
        switches = ["--ignore-eos", "--save-result", "--save-detailed", "--disable-tqdm"]
        self.process.stdin.write(
            json.dumps([*switches, *(str(part) for flag in flags.items() for part in flag)]) + "\n"
        )
        self.process.stdin.flush()
        while (line := self.process.stdout.readline()) != "run ended\n":
            if not line:
                raise RuntimeError(f"`vllm bench serve` ended at {loop.name}")
        result: dict[str, Any] = json.loads((self.folder / "result.json").read_text(encoding="utf-8"))
        return result


@contextmanager
def engines(python: str) -> Iterator[dict[str, Server]]:
    """Start both engines on the same core. They are used in turns, and one without requests takes no time."""
    with ExitStack() as held:
        yield {dtype: held.enter_context(serve(python, settings(dtype), shape=SHAPE)) for dtype in DTYPES}


def warm_up(servers: Mapping[str, Server], tool: LoadTool) -> None:
    for server in servers.values():
        tool.run(server, ClosedLoop(4, 64, 16), seed=1)


def record(servers: Mapping[str, Server], tool: LoadTool, folder: Path, *, number: int) -> None:
    """Run each loop on each engine, and keep the result files without their texts, with how disturbed the run was."""
    for place, loop in enumerate((*CALIBRATED, *HELD_OUT)):
        for dtype, server in servers.items():
            before = server.load()
            result = tool.run(server, loop, seed=100 * (number + 1) + place)
            kept = {**_trimmed(result), "disturbance": _disturbance(before, server.load())}
            path = folder / f"{dtype}-{loop.name}-{number}.json"
            path.write_text(json.dumps(kept), encoding="utf-8")
            times = f"{kept['mean_tpot_ms']:.2f} ms, {kept['mean_ttft_ms']:.1f} ms, {kept['duration']:.0f} s"
            sys.stdout.write(f"{path.name} {times} {kept['disturbance']}\n")
            sys.stdout.flush()


def _trimmed(result: dict[str, Any]) -> dict[str, Any]:
    """Keep what a calibration reads: of the gaps between tokens, their sum per request."""
    first_s = min(result["start_times"])
    details = {name: result[name] for name in _DETAILS}
    details["start_times"] = [round(at - first_s, 6) for at in result["start_times"]]
    details["ttfts"] = [round(seconds, 6) for seconds in result["ttfts"]]
    details["itls"] = [[round(sum(gaps), 6)] for gaps in result["itls"]]
    return {**{name: result[name] for name in _KEPT}, **details}


def _disturbance(before: Load, after: Load) -> dict[str, float]:
    seconds = after.at_s - before.at_s
    return {
        "engine_ran": round((after.engine_ran_s - before.engine_ran_s) / seconds, 4),
        "engine_waited": round((after.engine_waited_s - before.engine_waited_s) / seconds, 4),
        "stolen": round((after.stolen_s - before.stolen_s) / seconds, 4),
    }


def main(folder: Path, rounds: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    python = os.environ["PENSTOCK_VLLM"]
    with engines(python) as servers, load_tool(python) as tool:
        warm_up(servers, tool)
        for number in range(rounds):
            record(servers, tool, folder, number=number)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int((*sys.argv, "1")[2]))
