"""Writes the command line of a load tool for given requests. The tool is called by its executable, never imported."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRun:
    """One run of a load tool: the server, the requests, and where files are."""

    url: str
    model: str
    """Name by which the server serves the model."""
    tokenizer: str | None
    """Folder or name of the tokenizer. None: the tool finds it by the model's name."""
    requests_file: str
    """File with one line per request: its start and its lengths."""
    folder: str
    """Folder for the result of the run."""
    lengths: tuple[int, int] | None
    """Input and output tokens if all requests are equally long."""
    requests: int
    requests_per_s: float
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTool:
    """A load tool that can apply the requests of a bench and writes a file that `results` reads."""

    name: str
    executable: str
    install: str
    """Command that installs the tool."""
    mixes_lengths: bool
    """Whether the tool replays a file with requests of different lengths. Other tools draw requests of one length."""
    command: Callable[[ToolRun], list[str]]


def request_lines(starts_s: Sequence[float], inputs: Sequence[int], outputs: Sequence[int]) -> str:
    """Return requests in Mooncake's trace format: one JSON line per request, with its start in milliseconds."""
    return "".join(
        json.dumps({"timestamp": round(1e3 * start_s, 3), "input_length": int(given), "output_length": int(made)})
        + "\n"
        for start_s, given, made in zip(starts_s, inputs, outputs, strict=True)
    )


def _aiperf(run: ToolRun) -> list[str]:
    return [
        *("aiperf", "profile", "--model", run.model, "--url", run.url, "--endpoint-type", "chat", "--streaming"),
        *_tokenizer(run),
        *("--input-file", run.requests_file, "--custom-dataset-type", "mooncake_trace", "--fixed-schedule"),
        *("--extra-inputs", "ignore_eos:true", "--random-seed", str(run.seed)),
        *("--ui", "none", "--output-artifact-dir", run.folder),
    ]


def _vllm(run: ToolRun) -> list[str]:
    if run.lengths is None:
        raise UsageError("`vllm bench serve` sends requests of one length; use --tool aiperf for a mix of lengths")
    inputs, outputs = run.lengths
    return [
        *("vllm", "bench", "serve", "--backend", "openai-chat", "--endpoint", "/v1/chat/completions"),
        *("--base-url", run.url, "--model", run.model, *_tokenizer(run), "--dataset-name", "random"),
        *("--random-input-len", str(inputs), "--random-output-len", str(outputs)),
        *("--num-prompts", str(run.requests), "--request-rate", f"{run.requests_per_s:.9g}", "--ignore-eos"),
        *("--seed", str(run.seed), "--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "50,90,95,99"),
        *("--save-result", "--save-detailed", "--result-dir", run.folder, "--result-filename", "result.json"),
    ]


def _tokenizer(run: ToolRun) -> tuple[str, ...]:
    return () if run.tokenizer is None else ("--tokenizer", run.tokenizer)


LOAD_TOOLS: Final[Mapping[str, LoadTool]] = {
    tool.name: tool
    for tool in (
        LoadTool(name="aiperf", executable="aiperf", install="pip install aiperf", mixes_lengths=True, command=_aiperf),
        LoadTool(name="vllm", executable="vllm", install="pip install vllm", mixes_lengths=False, command=_vllm),
    )
}
"""Tools by name, the preferred one first. guidellm is missing: its Poisson gaps repeat (docs/guides/measure.md)."""
