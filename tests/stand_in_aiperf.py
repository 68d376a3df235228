"""Stands in for aiperf in tests: replays a file of requests and writes the two result files of aiperf.

It takes the flags that `penstock bench` passes. A prompt is made of four-byte words, which the emulator counts as one
token each.
"""

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path
from random import Random
from urllib.parse import urlsplit


async def send(host: str, port: int, model: str, prompt: str, tokens: int) -> dict[str, float]:
    """Send one streamed chat, and return its start, its times in seconds and its token counts."""
    body = json.dumps(
        {
            "model": model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": tokens,
            "stream": True,
            "ignore_eos": True,
            "stream_options": {"include_usage": True},
        }
    ).encode()
    start = time.time()
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n")
    writer.write(b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    first = last = 0.0
    usage: dict[str, int] = {}
    async for line in reader:
        if line.startswith(b"data: {"):
            event = json.loads(line[6:])
            usage = event.get("usage") or usage
            if event["choices"] and event["choices"][0]["delta"].get("content"):
                last = time.time()
                first = first or last
    writer.close()
    return {
        "start": start,
        "ttft": first - start,
        "latency": last - start,
        "input": usage["prompt_tokens"],
        "output": usage["completion_tokens"],
    }


async def replay(address: str, model: str, lines: list[dict[str, float]], seed: int) -> list[dict[str, float]]:
    """Send all requests at their times."""
    host, port = urlsplit(address).hostname or "", urlsplit(address).port or 80
    draw, begun = Random(seed), time.monotonic()

    async def one(line: dict[str, float], prompt: str) -> dict[str, float]:
        await asyncio.sleep(max(0.0, begun + line["timestamp"] / 1e3 - time.monotonic()))
        return await send(host, port, model, prompt, int(line["output_length"]))

    prompts = ["".join(f"{draw.randrange(1000):03d} " for _ in range(int(line["input_length"]))) for line in lines]
    return await asyncio.gather(*(one(line, prompt) for line, prompt in zip(lines, prompts, strict=True)))


def table(values: list[float], unit: str, scale: float = 1.0) -> dict[str, object]:
    ordered = sorted(scale * value for value in values)
    ranks = {f"p{rank}": ordered[min(len(ordered) - 1, rank * len(ordered) // 100)] for rank in (50, 90, 95, 99)}
    return {"unit": unit, "avg": sum(ordered) / len(ordered), **ranks}


def main() -> None:
    """Replay the requests of a file, and write the result files."""
    parser = argparse.ArgumentParser()
    parser.add_argument("action")
    for flag in ("model", "url", "input-file", "output-artifact-dir", "random-seed"):
        parser.add_argument(f"--{flag}", required=True)
    given, _ = parser.parse_known_args()
    lines = [json.loads(line) for line in Path(given.input_file).read_text().splitlines()]
    done = asyncio.run(replay(given.url, given.model, lines, int(given.random_seed)))
    folder = Path(given.output_artifact_dir)
    folder.mkdir(parents=True, exist_ok=True)
    seconds = max(one["start"] + one["latency"] for one in done) - min(one["start"] for one in done)
    tpot = [(one["latency"] - one["ttft"]) / (one["output"] - 1) for one in done]
    summary = {
        "aiperf_version": "0.13.0",
        "request_count": {"unit": "requests", "avg": len(done)},
        "benchmark_duration": {"unit": "sec", "avg": seconds},
        "time_to_first_token": table([one["ttft"] for one in done], "ms", 1e3),
        "inter_token_latency": table(tpot, "ms", 1e3),
        "request_latency": table([one["latency"] for one in done], "ms", 1e3),
        "usage_prompt_tokens": table([one["input"] for one in done], "tokens"),
        "usage_completion_tokens": table([one["output"] for one in done], "tokens"),
        "output_token_throughput": {"unit": "tokens/sec", "avg": sum(one["output"] for one in done) / seconds},
        "input_config": {"models": {"items": [{"name": given.model}]}},
    }
    records = [
        {
            "metadata": {"request_start_ns": int(one["start"] * 1e9), "benchmark_phase": "profiling"},
            "metrics": {
                "time_to_first_token": {"value": one["ttft"] * 1e3, "unit": "ms"},
                "request_latency": {"value": one["latency"] * 1e3, "unit": "ms"},
                "usage_prompt_tokens": {"value": one["input"], "unit": "tokens"},
                "output_sequence_length": {"value": one["output"], "unit": "tokens"},
            },
        }
        for one in done
    ]
    (folder / "profile_export_aiperf.json").write_text(json.dumps(summary))
    (folder / "profile_export.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))


def install(folder: Path) -> Path:
    """Write an executable with the name of aiperf into a folder, which must be put on PATH."""
    path = folder / "aiperf"
    path.write_text(f"#!{sys.executable}\n" + Path(__file__).read_text(encoding="utf-8"), encoding="utf-8")
    path.chmod(0o755)
    return path


if __name__ == "__main__":
    main()
