"""Measures servers with an existing load tool, after a comparison of their setups: `penstock bench`."""

import json
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Final

from rich.console import RenderableType

from penstock.api.answer import ApiAnswer, Row
from penstock.api.arguments.bench_targets import bench_targets
from penstock.api.options.bench_options import BenchOptions
from penstock.api.options.option_fields import takes
from penstock.api.results import load_runs
from penstock.errors import UnreadableFile, UsageError
from penstock.load_tools.load_run import LoadRun
from penstock.load_tools.tool_commands import LOAD_TOOLS, LoadTool, ToolRun, request_lines
from penstock.parity.certificate import ComparedFact, ParityCertificate, Standing, certify
from penstock.parity.http_client import EndpointError, first_model, server_base
from penstock.parity.openai_client import ask
from penstock.parity.read_setup import read_setup
from penstock.parity.setup_facts import FACT_BY_NAME, ServerSetup
from penstock.report.bench import BenchDocument, render_bench
from penstock.target_runs.bench_target import BenchTarget
from penstock.target_runs.interleaved_runs import BenchRun, interleave
from penstock.target_runs.judge_runs import JudgedTarget, judge_target

_MIN_TIMEOUT_S: Final = 900.0
_MAX_SLOWDOWN: Final = 10.0
"""Ratio of the longest time of a run to the time in which its requests arrive."""


@dataclass(frozen=True, kw_only=True, repr=False)
class BenchAnswer(ApiAnswer):
    """Certificate of parity, and the judged runs of each target."""

    document_type = BenchDocument
    tool: LoadTool
    certificate: ParityCertificate | None
    """Comparison of the servers; None in a dry run, which asks no server."""
    required: tuple[ComparedFact, ...]
    """Facts in which a server differs from what the acceptance benchmark requires."""
    targets: tuple[JudgedTarget, ...]
    commands: tuple[str, ...]
    """Commands of runs without a result file, in the order in which they must run."""

    @property
    def certified(self) -> bool:
        """Return whether no difference between servers, or from what is required, is refused."""
        return _comparable(self.certificate, self.required)

    @property
    def good(self) -> bool:
        """Return whether the servers are comparable and no measured target fails."""
        undecided = bool(self.commands)
        return self.certified and all(one.passes or (undecided and one.passes is None) for one in self.targets)

    def rows(self) -> list[Row]:
        """Return one row per target and load."""
        return [
            {
                "target": one.target.name,
                "load": cell.load.name,
                "requests_per_s": cell.load.requests_per_s,
                "repetitions": len(cell.usable),
                "in_time_fraction": None if cell.in_time is None else cell.in_time.median,
                "good_requests_per_s": None if cell.goodput is None else cell.goodput.median,
                "ttft_s": None if cell.ttft is None else cell.ttft.median,
                "tpot_s": None if cell.tpot is None else cell.tpot.median,
                "passes": cell.passes,
            }
            for one in self.targets
            for cell in one.cells
        ]

    def render(self, columns: int) -> RenderableType:
        """Return what `bench` prints."""
        return render_bench(self.certificate, self.required, self.targets, self._left_to_run(), columns)

    def _left_to_run(self) -> tuple[str, ...]:
        """Return the commands that are left after a sentence that says what to do with them."""
        if not self.commands:
            return ()
        missing = "" if which(self.tool.executable) else f" {self.tool.name} is not installed (`{self.tool.install}`)."
        head = f"{len(self.commands)} runs are left.{missing} Run them in this order, then repeat this command:"
        return head, *self.commands

    def _summary(self) -> tuple[str, Sequence[str]]:
        words = {True: "passes", False: "fails", None: "not measured"}
        return self.tool.name, [f"{one.target.name} {words[one.passes]}" for one in self.targets]


@takes(BenchOptions)
def bench(options: BenchOptions) -> BenchAnswer:
    """Measure servers with a load tool, as `penstock bench` does.

    `bench("acceptance-amd.yaml", ["amd=http://10.0.0.1:8000"])`
    """
    unknown = next((name for name in options.accept if name not in FACT_BY_NAME), None)
    if unknown is not None:
        raise UsageError(f"--accept: '{unknown}' is not a fact; write one of {', '.join(FACT_BY_NAME)}")
    targets = bench_targets(options)
    runs = interleave(targets, options.repeats, options.seed)
    tool = _tool(options, runs)
    setups = [] if options.dry_run else _setups(targets, options)
    certificate = None if options.dry_run else _certificate(targets, setups, options)
    required = tuple(one for target, setup in zip(targets, setups, strict=False) for one in _unmet(target, setup))
    found, missing = _measure(options, runs, tool) if _comparable(certificate, required) else ([], [])
    return BenchAnswer(
        tool=tool,
        certificate=certificate,
        required=required,
        targets=tuple(judge_target(one, found, replayed=tool.mixes_lengths) for one in targets),
        commands=tuple(missing),
    )


def _comparable(certificate: ParityCertificate | None, required: Sequence[ComparedFact]) -> bool:
    """Return whether no difference between servers, or from what is required, is refused."""
    differs = any(one.standing is Standing.REFUSED for one in required)
    return not differs and (certificate is None or certificate.holds)


def _tool(options: BenchOptions, runs: Sequence[BenchRun]) -> LoadTool:
    """Return the load tool: the named one, else the first that is installed and can send the requests."""
    if options.tool is not None and options.tool not in LOAD_TOOLS:
        raise UsageError(f"--tool: '{options.tool}' is not supported; write one of {', '.join(LOAD_TOOLS)}")
    if options.tool is not None:
        return LOAD_TOOLS[options.tool]
    mixed = any(_one_length(run) is None for run in runs)
    fitting = [tool for tool in LOAD_TOOLS.values() if tool.mixes_lengths or not mixed]
    return next((tool for tool in fitting if which(tool.executable) is not None), fitting[0])


def _setups(targets: Sequence[BenchTarget], options: BenchOptions) -> list[ServerSetup]:
    found = []
    for number, target in enumerate(targets):
        options.watch.progress(f"asking {target.name} for its setup", number, len(targets))
        found.append(read_setup(target.name, target.url))
    return found


def _certificate(
    targets: Sequence[BenchTarget], setups: Sequence[ServerSetup], options: BenchOptions
) -> ParityCertificate:
    """Compare all targets. Facts that the acceptance benchmark states differently may differ."""
    scored = {}
    for target in targets if len(targets) > 1 else ():
        options.watch.progress(f"asking {target.name} for log-probabilities", 0, 0)
        try:
            scored[target.name] = ask(target.url, None)
        except EndpointError:
            break  # without log-probabilities of all servers there is nothing to compare
    stated = {name for target in targets for name in target.required}
    by_file = {name for name in stated if len({target.required.get(name) for target in targets}) > 1}
    certificate = certify(
        setups, scored=scored if len(scored) == len(targets) else {}, accepted={*options.accept, *by_file}
    )
    folder = Path(options.to)
    folder.mkdir(parents=True, exist_ok=True)
    lines = {one.fact.name: {"standing": str(one.standing), "values": dict(one.values)} for one in certificate.facts}
    (folder / "parity.json").write_text(json.dumps(lines, indent=2) + "\n", encoding="utf-8")
    return certificate


def _unmet(target: BenchTarget, setup: ServerSetup) -> list[ComparedFact]:
    """Return the required facts in which a server differs."""
    required = ServerSetup(target=f"required of {target.name}", values=target.required)
    compared = certify([required, setup]).facts
    different = {Standing.REFUSED, Standing.MARKED}
    return [one for one in compared if one.fact.name in target.required and one.standing in different]


def _measure(
    options: BenchOptions, runs: Sequence[BenchRun], tool: LoadTool
) -> tuple[list[tuple[BenchRun, LoadRun]], list[str]]:
    """Run what has no result yet. Return the runs with a result, and the commands of those without."""
    folder, installed = Path(options.to), which(tool.executable) is not None and not options.dry_run
    served = {
        run.target.name: run.target.model if options.dry_run else first_model(server_base(run.target.url))
        for run in runs
    }
    found, missing = [], []
    for number, run in enumerate(runs):
        results = folder / run.name
        command = tool.command(_tool_run(options, run, served[run.target.name]))
        if installed and not _has_result(results):
            options.watch.progress(f"{tool.name}: {run.name}", number, len(runs))
            _execute(command, results, run)
        if run.repetition and _has_result(results):
            found.append((run, _only_run(results)))
        elif not _has_result(results):
            missing.append(shlex.join(command))
    return found, missing


def _tool_run(options: BenchOptions, run: BenchRun, served: str) -> ToolRun:
    """Write the requests of a run, and return what the load tool needs to know. The server calls its model `served`."""
    folder, requests = Path(options.to), run.requests()
    path = folder / f"{run.name}.requests.jsonl"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        starts_s = requests.arrival_s - requests.arrival_s[0]
        text = request_lines(starts_s.tolist(), requests.input_tokens.tolist(), requests.output_tokens.tolist())
        path.write_text(text, encoding="utf-8")
    return ToolRun(
        url=server_base(run.target.url),
        model=served,
        tokenizer=options.tokenizer,
        requests_file=str(path),
        folder=str(folder / run.name),
        lengths=_one_length(run),
        requests=run.load.requests,
        requests_per_s=run.load.requests_per_s,
        seed=run.seed,
    )


def _one_length(run: BenchRun) -> tuple[int, int] | None:
    requests = run.requests()
    inputs, outputs = set(requests.input_tokens.tolist()), set(requests.output_tokens.tolist())
    return (inputs.pop(), outputs.pop()) if len(inputs) == len(outputs) == 1 else None


def _execute(command: Sequence[str], results: Path, run: BenchRun) -> None:
    results.mkdir(parents=True, exist_ok=True)
    longest_s = max(_MIN_TIMEOUT_S, _MAX_SLOWDOWN * run.load.requests / run.load.requests_per_s)
    log = results / "output.log"
    try:
        with log.open("wb") as output:
            done = subprocess.run(  # noqa: S603 - the tool that the user named, without a shell
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=longest_s, check=False
            )
    except subprocess.TimeoutExpired:
        raise UsageError(f"{command[0]} did not end within {longest_s:.0f} s; {log} has its output") from None
    except OSError as error:
        raise UsageError(f"{command[0]} cannot be started: {error.strerror or error}") from None
    if done.returncode or not _has_result(results):
        raise UsageError(f"{command[0]} ended with code {done.returncode} and no result; {log} has its output")


def _has_result(results: Path) -> bool:
    return results.is_dir() and any(results.rglob("*.json"))


def _only_run(results: Path) -> LoadRun:
    found = load_runs(results)
    if len(found) != 1:
        raise UnreadableFile(f"{results}: has {len(found)} runs; keep the files of one run in this folder")
    return found[0]
