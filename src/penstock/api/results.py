"""Reads result files of load tools into one set of definitions: `penstock results`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from rich.console import RenderableType

from penstock.api.answer import ApiAnswer, Row
from penstock.errors import UnreadableFile, UsageError
from penstock.load_tools.benchmark_report import benchmark_report
from penstock.load_tools.load_run import LoadRun
from penstock.load_tools.result_files import KNOWN_TOOLS, read_runs, run_files
from penstock.load_tools.usable_runs import missing_facts, refusals
from penstock.reading.text import read_text
from penstock.report.load_results import JudgedRun, ResultsDocument, render_results

_MAX_BYTES: Final = 256 * 2**20
_REMEDY: Final = f"give a result file or folder of {KNOWN_TOOLS}"


@dataclass(frozen=True, kw_only=True, repr=False)
class ResultsAnswer(ApiAnswer):
    """Runs of load tools, each with the reasons that forbid its use."""

    document_type = ResultsDocument
    runs: tuple[JudgedRun, ...]
    skipped: tuple[str, ...] = ()
    """Documents of folders that were not read, each with the reason."""

    @property
    def good(self) -> bool:
        """Return whether every run can be used."""
        return all(judged.usable for judged in self.runs)

    def rows(self) -> list[Row]:
        """Return one row per run."""
        return [
            {
                "file": run.where,
                "tool": run.tool,
                "users": run.users,
                "requests_per_s": run.requests_per_s,
                "input_tokens": run.input_length.mean,
                "output_tokens": run.output_length.mean,
                "ttft_mean_s": run.ttft.mean_s,
                "tpot_mean_s": run.tpot.mean_s,
                "output_tokens_per_s": run.output_tokens_per_s,
                "usable": judged.usable,
            }
            for judged in self.runs
            for run in (judged.run,)
        ]

    def render(self, columns: int) -> RenderableType:
        """Return what `results` prints."""
        return render_results(self.runs, self.skipped, columns)

    def write_reports(self, folder: Path) -> list[Path]:
        """Write one Benchmark Report 0.2.1 per run into a folder. Return the paths of the files."""
        import yaml  # noqa: PLC0415 - only where reports are written

        folder.mkdir(parents=True, exist_ok=True)
        written = []
        for number, judged in enumerate(self.runs, 1):
            path = folder / f"report-{number}.yaml"
            report = benchmark_report(judged.run, _uid(judged.run))
            path.write_text(yaml.safe_dump(report, sort_keys=False), encoding="utf-8")
            written.append(path)
        return written

    def _summary(self) -> tuple[str, Sequence[str]]:
        return f"{len(self.runs)} runs", [
            f"{judged.run.tool} TPOT {judged.run.tpot.mean_s * 1e3:.1f} ms" for judged in self.runs
        ]


def results(files: Sequence[str | Path], *, shared_prefixes: bool = False) -> ResultsAnswer:
    """Read result files of load tools, as `penstock results` does: `results(["vllm-bench.json"])`.

    `shared_prefixes` says that the prompts share prefixes on purpose, so that hits of the prefix cache are no fault.
    """
    skipped: list[str] = []
    found = [run for path in files for run in load_runs(Path(path), skipped)]
    if not found:
        raise UsageError(_REMEDY)
    return ResultsAnswer(
        skipped=tuple(skipped),
        runs=tuple(
            JudgedRun(run=run, refusals=refusals(run, cache_is_stated=shared_prefixes), unstated=missing_facts(run))
            for run in found
        ),
    )


def load_runs(path: Path, skipped: list[str] | None = None) -> list[LoadRun]:
    """Read every run of a result file, or of a folder.

    A document in a folder that no load tool wrote is left out, and its path is added to `skipped`.
    """
    if not path.is_dir():
        return list(_runs_of_file(path))
    found: list[LoadRun] = []
    reasons: list[UnreadableFile] = []
    for one in run_files(path):
        try:
            found += _runs_of_file(one)
        except UnreadableFile as error:
            reasons.append(error)
            if skipped is not None:
                skipped.append(str(error))
    if not found:
        raise reasons[0] if reasons else UsageError(f"{path}: has no result file; {_REMEDY}")
    return found


def _runs_of_file(path: Path) -> tuple[LoadRun, ...]:
    def companion(name: str) -> str | None:
        other = path.parent / name
        return read_text(other, _REMEDY, most_bytes=_MAX_BYTES) if other.is_file() else None

    return read_runs(read_text(path, _REMEDY, most_bytes=_MAX_BYTES), str(path), companion)


def _uid(run: LoadRun) -> str:
    """Return an identifier that is equal for equal runs."""
    facts = [run.tool, run.duration_s, run.completed, run.ttft.mean_s, run.tpot.mean_s, str(run.started)]
    return sha256(json.dumps(facts).encode()).hexdigest()[:32]
