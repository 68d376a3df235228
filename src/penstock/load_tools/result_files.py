"""Finds the load tool that wrote a result file, and reads its runs."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Final, TypeAlias

from penstock.errors import UnreadableFile
from penstock.load_tools.aiperf import is_aiperf, read_aiperf
from penstock.load_tools.benchmark_report import is_benchmark_report, read_benchmark_report
from penstock.load_tools.evalscope import is_evalscope, read_evalscope
from penstock.load_tools.genai_bench import is_genai_bench, read_genai_bench
from penstock.load_tools.guidellm import is_guidellm, read_guidellm
from penstock.load_tools.inference_perf import is_inference_perf, read_inference_perf
from penstock.load_tools.load_run import LoadRun
from penstock.load_tools.sglang_bench import is_sglang_bench, read_sglang_bench
from penstock.load_tools.vllm_bench import is_vllm_bench, read_vllm_bench
from penstock.reading.json_tree import JsonTree, parse_json, parse_json_lines

Companion: TypeAlias = Callable[[str], str | None]
"""Returns the text of another file of the same folder, or None if the folder has no such file."""
KNOWN_TOOLS: Final = (
    "vllm bench serve, sglang.bench_serving, aiperf, guidellm, inference-perf, genai-bench, evalscope perf, "
    "or a Benchmark Report 0.2.1"
)
_RUN_FILES: Final = ("benchmark_summary.json", "profile_export_aiperf.json")
"""Names of the files that hold a run, where a tool writes a folder with several files."""
_SUFFIXES: Final = (".json", ".jsonl", ".yaml")
_COMPANION: Final = ".profile_export.jsonl"
"""End of the name of aiperf's list of requests, in the folder of the result file."""


def read_runs(text: str, where: str, companion: Companion = lambda _: None) -> tuple[LoadRun, ...]:
    """Read every run of a result file of a known load tool."""
    name = PurePath(where).name
    documents = _documents(text, where)
    runs = tuple(_with_real_users(run) for document in documents for run in _runs_of(document, name, companion))
    if not runs:
        raise UnreadableFile(f"{where}: has no run")
    return runs


def _with_real_users(run: LoadRun) -> LoadRun:
    """Return a run of no more users than there were requests. Load tools state the limit that was asked for."""
    sent = run.completed + run.failed
    return run if run.users is None or run.users <= sent else replace(run, users=max(1, sent))


def run_files(folder: Path) -> list[Path]:
    """Return the result files in the folder, and every other document that may be one.

    A tool that writes a folder of its own has one result file in it; the other files of that folder belong to it.
    """
    named = [path for name in _RUN_FILES for path in sorted(folder.rglob(name))]
    stages = sorted(folder.rglob("stage_*_lifecycle_metrics.json"))
    scenarios = [
        path
        for metadata in sorted(folder.rglob("experiment_metadata.json"))
        for path in sorted(metadata.parent.glob("*.json"))
        if path != metadata
    ]
    found = [*named, *stages, *scenarios]
    own = {path.parent for path in found}
    others = [path for suffix in _SUFFIXES for path in sorted(folder.rglob(f"*{suffix}"))]
    return [
        *found,
        *(path for path in others if not own.intersection(path.parents) and not path.name.endswith(_COMPANION)),
    ]


def _documents(text: str, where: str) -> list[JsonTree]:
    suffix = PurePath(where).suffix
    if suffix in {".yaml", ".yml"}:
        return [_parse_yaml(text, where)]
    return parse_json_lines(text, where) if suffix == ".jsonl" else [parse_json(text, where)]


def _parse_yaml(text: str, where: str) -> JsonTree:
    import yaml  # noqa: PLC0415 - only for YAML files

    try:
        return JsonTree(yaml.safe_load(text), where)
    except (yaml.YAMLError, RecursionError, ValueError):
        raise UnreadableFile(f"{where}: is not a YAML document; give the file that the load tool wrote") from None


def _runs_of(document: JsonTree, name: str, companion: Companion) -> tuple[LoadRun, ...]:
    if is_guidellm(document):
        return read_guidellm(document)
    for is_of_tool, read in _READERS.items():
        if is_of_tool(document):
            return (read(document, name, companion),)
    raise UnreadableFile(f"{document.where}: is not a result file of a known load tool ({KNOWN_TOOLS})")


def _aiperf(document: JsonTree, name: str, companion: Companion) -> LoadRun:
    listed = companion("profile_export.jsonl") or companion(f"{PurePath(name).stem}.profile_export.jsonl")
    return read_aiperf(document, () if listed is None else parse_json_lines(listed, "profile_export.jsonl"))


def _inference_perf(document: JsonTree, _: str, companion: Companion) -> LoadRun:
    config, listed = companion("config.yaml"), companion("per_request_lifecycle_metrics.json")
    requests = None if listed is None else parse_json(listed, "per_request_lifecycle_metrics.json")
    return read_inference_perf(
        document,
        None if config is None else _parse_yaml(config, "config.yaml"),
        () if requests is None else tuple(requests.items()),
    )


def _genai_bench(document: JsonTree, _: str, companion: Companion) -> LoadRun:
    metadata = companion("experiment_metadata.json")
    return read_genai_bench(document, None if metadata is None else parse_json(metadata, "experiment_metadata.json"))


def _evalscope(document: JsonTree, _: str, companion: Companion) -> LoadRun:
    arguments, table = companion("benchmark_args.json"), companion("benchmark_percentile.json")
    return read_evalscope(
        document,
        None if arguments is None else parse_json(arguments, "benchmark_args.json"),
        () if table is None else tuple(parse_json(table, "benchmark_percentile.json").items()),
    )


_READERS: Final[Mapping[Callable[[JsonTree], bool], Callable[[JsonTree, str, Companion], LoadRun]]] = {
    is_aiperf: _aiperf,
    is_inference_perf: _inference_perf,
    is_genai_bench: _genai_bench,
    is_evalscope: _evalscope,
    is_benchmark_report: lambda document, _, __: read_benchmark_report(document),
    is_sglang_bench: lambda document, _, __: read_sglang_bench(document),
    is_vllm_bench: lambda document, _, __: read_vllm_bench(document),
}
