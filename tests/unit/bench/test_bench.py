"""Two servers are compared, then measured with the same requests in turns, and each passes or fails its SLO."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from emulated import MODEL, ask, emulated, serve
from penstock.api.arguments.bench_targets import bench_targets
from penstock.api.bench import BenchAnswer, bench
from penstock.api.options.bench_options import BenchOptions
from penstock.errors import UsageError
from penstock.load_tools.load_run import CountedBy, LatencyStatistics, LoadRun, RequestRecord, TokenLength
from penstock.load_tools.tool_commands import LOAD_TOOLS
from penstock.parity.certificate import Standing
from penstock.target_runs.bench_target import BenchLoad, BenchTarget, mixed_lengths
from penstock.target_runs.interleaved_runs import BenchRun, interleave
from penstock.target_runs.judge_runs import judge_run, judge_target
from penstock.workload import parse_slo
from ports import free_ports
from stand_in_aiperf import install

PLAN = """
name: small
workloads:
  - name: chat
    model: llama-3.1-8b
    slo: ttft=500ms,tpot=50ms,attain=95%
    requests_per_s: 20
    lengths:
      - {input: 64, output: 8, share: 70%}
      - {input: 128, output: 16, share: 30%}
accelerators: [h100, mi300x]
"""
SLO = parse_slo("ttft=500ms,tpot=50ms,attain=95%")


def target(name: str, *loads: float, requests: int = 40) -> BenchTarget:
    return BenchTarget(
        name=name,
        url="http://127.0.0.1:1",
        model=MODEL,
        workload=mixed_lengths("chat", [(64, 8, 0.7), (128, 16, 0.3)]),
        slo=SLO,
        loads=tuple(
            BenchLoad(name=f"{rate:g}", requests_per_s=rate, requests=requests, at_least_fraction=0.95)
            for rate in loads
        ),
    )


def answered(asked: BenchRun, *, ttft_s: float = 0.1, tpot_s: float = 0.02, late: int = 0) -> LoadRun:
    """Return a run in which requests start as planned, and the last `late` ones have a late first token."""
    requests = asked.requests()
    count = len(requests)
    records = tuple(
        RequestRecord(
            start_s=float(start - requests.arrival_s[0]),
            input_tokens=int(given) + 5,
            output_tokens=int(made),
            ttft_s=first,
            latency_s=first + tpot_s * (int(made) - 1),
        )
        for number, (start, given, made) in enumerate(
            zip(requests.arrival_s, requests.input_tokens, requests.output_tokens, strict=True)
        )
        for first in (ttft_s if number < count - late else 2.0,)
    )
    return LoadRun(
        tool="aiperf",
        where="result.json",
        duration_s=records[-1].start_s + 1.0,
        completed=count,
        failed=0,
        input_length=TokenLength(mean=float(requests.input_tokens.mean()) + 5, counted_by=CountedBy.SERVER),
        output_length=TokenLength(mean=float(requests.output_tokens.mean()), counted_by=CountedBy.SERVER),
        ttft=LatencyStatistics(mean_s=ttft_s),
        tpot=LatencyStatistics(mean_s=tpot_s),
        output_tokens_per_s=sum(one.output_tokens for one in records) / (records[-1].start_s + 1.0),
        records=records,
    )


def test_runs_alternate_and_share_their_requests() -> None:
    targets = [target("amd", 1.0, 2.0), target("nvidia", 1.0, 2.0)]
    warm, runs = interleave(targets, 4, seed=7)[:2], interleave(targets, 4, seed=7)[2:]
    assert [run.repetition for run in warm] == [0, 0]
    assert len(runs) == 2 * 2 * 4
    for first, second in zip(runs[::2], runs[1::2], strict=True):
        assert {first.target.name, second.target.name} == {"amd", "nvidia"}
        assert first.seed == second.seed
        assert (first.requests().arrival_s == second.requests().arrival_s).all()
    assert len({run.seed for run in runs}) == 2 * 4
    assert [run.target.name for run in runs[::2]].count("amd") == 4


def test_goodput_and_price_count_only_requests_in_time() -> None:
    amd = replace(target("amd", 4.0), usd_per_hour=3.6)
    runs = [run for run in interleave([amd], 3, seed=1) if run.repetition]
    judged = judge_target(amd, [(run, answered(run, late=1)) for run in runs], replayed=True)
    (cell,) = judged.cells
    assert cell.in_time is not None
    assert cell.in_time.median == pytest.approx(39 / 40)
    assert cell.passes
    good = [sum(one.output_tokens for one in answered(run).records[:-1]) / answered(run).duration_s for run in runs]
    assert judged.usd_per_mtok is not None
    assert judged.usd_per_mtok.median == pytest.approx(3.6 * 1e6 / 3600 / sorted(good)[1])
    assert judged.usd_per_mtok.low == pytest.approx(1000 / max(good))
    late = judge_target(amd, [(run, answered(run, late=3)) for run in runs], replayed=True)
    assert late.passes is False
    assert late.usd_per_mtok is None
    assert judge_target(amd, [], replayed=True).passes is None


def _more_failures(run: LoadRun) -> LoadRun:
    return replace(run, completed=run.completed - 4, failed=4, records=run.records[:-4])


def _slow_start(run: LoadRun) -> LoadRun:
    return replace(run, records=tuple(replace(one, start_s=one.start_s * 1.5) for one in run.records))


DISTURBED: dict[str, Callable[[LoadRun], LoadRun]] = {
    "requests failed": _more_failures,
    "ms late on average": _slow_start,
    "ended early": lambda run: replace(run, completed=20, records=run.records[:20]),
    "name the server's tokenizer": lambda run: replace(run, input_length=replace(run.input_length, mean=40.0)),
    "Answers had": lambda run: replace(run, output_length=replace(run.output_length, mean=4.0)),
    "does not list its requests": lambda run: replace(run, records=()),
    "from the prefix cache": lambda run: replace(run, cached_prompt_fraction=0.9),
}


@pytest.mark.parametrize("reason", DISTURBED)
def test_a_disturbed_run_is_refused(reason: str) -> None:
    asked = interleave([target("amd", 4.0)], 1, seed=1)[1]
    assert not judge_run(asked, answered(asked), replayed=True).refusals
    judged = judge_run(asked, DISTURBED[reason](answered(asked)), replayed=True)
    assert any(reason in one for one in judged.refusals)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"users": 16}, "16 users in a closed loop"),
        ({"asked_rate_per_s": 8.0}, "of 8 requests per second, not of 4"),
        ({"completed": 60}, "of 60 requests, not of the 40"),
        ({"asked_rate_per_s": 4.0, "most_in_flight": 16}, "no more than 16 requests at once"),
    ],
)
def test_a_file_of_another_run_is_refused(facts: dict[str, Any], reason: str) -> None:
    asked = interleave([target("amd", 4.0)], 1, seed=1)[1]
    assert not judge_run(asked, answered(asked), replayed=False).refusals
    judged = judge_run(asked, replace(answered(asked), **facts), replayed=False)
    assert any(reason in one for one in judged.refusals)


def test_a_bench_at_another_rate_has_other_prompts() -> None:
    seeds = {interleave([target("amd", rate)], 1, seed=0)[1].seed for rate in (3.7, 4.0)}
    assert len(seeds) == 2


def options(folder: Path, *targets: str, text: str = PLAN, **more: Any) -> BenchOptions:  # noqa: ANN401 - options
    path = folder / "file.yaml"
    path.write_text(text)
    return BenchOptions(path, targets, **{"rate": 4.0, **more})


@pytest.mark.parametrize(
    ("targets", "more", "said"),
    [
        (("amd",), {}, "is not NAME=VALUE"),
        ((), {}, "no server is named"),
        (("a=http://x", "a=http://y"), {}, "'a' is named twice"),
        (("a=http://x",), {"rate": None}, "add --rate"),
        (("a=http://x",), {"workload": "other"}, "name one workload of the plan: chat"),
        (("a=http://x",), {"usd_per_hour": ("b=2",)}, "no target has this name"),
        (("a=http://x",), {"usd_per_hour": ("a=free",)}, "is not a price above 0"),
    ],
)
def test_a_wrong_question_is_refused_in_one_line(
    targets: tuple[str, ...], more: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        bench_targets(options(tmp_path, *targets, **more))
    assert "\n" not in str(refused.value)


def test_commands_of_a_dry_run_alternate_and_ask_no_server(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN)
    answer = bench(path, ["amd=http://a:1", "nvidia=http://n:1/v1"], rate=4, repeats=2, dry_run=True, to=tmp_path / "b")
    assert answer.good
    assert len(answer.commands) == 2 + 2 * 2
    assert ["a:1" in command for command in answer.commands] == [True, False, True, False, False, True]
    assert all("--url http://n:1 " in command for command in answer.commands if "a:1" not in command)
    lines = (tmp_path / "b" / "1-4-per-s-amd.requests.jsonl").read_text().splitlines()
    assert len(lines) == 300
    assert json.loads(lines[0])["timestamp"] == 0
    with pytest.raises(UsageError, match="use --tool aiperf for a mix of lengths"):
        bench(path, ["amd=http://a:1"], rate=4, tool="vllm", dry_run=True, to=tmp_path / "c")
    assert set(LOAD_TOOLS) == {"aiperf", "vllm"}


def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, *commands: dict[str, object]) -> BenchAnswer:
    """Measure two emulated servers, after commands to them."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(install(tmp_path / "bin").parent), prepend=":")
    first, second, control = free_ports(3)
    path, found = tmp_path / "file.yaml", []
    path.write_text(file)
    more: dict[str, Any] = {} if "cases" in file else {"rate": 20, "requests": 40}

    async def script() -> None:
        for command in commands:
            assert (await ask(control, "/", command)).status == 200
        targets = [f"amd=http://127.0.0.1:{first}", f"nvidia=http://127.0.0.1:{second}"]
        found.append(
            await asyncio.to_thread(
                bench, path, targets, to=tmp_path / "b", repeats=2, usd_per_hour=["amd=3.6"], **more
            )
        )

    serve([emulated(first, pool="amd"), emulated(second, pool="nvidia")], control, script)
    return found[0]


def test_two_emulated_servers_pass_or_fail_by_their_speed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = served(tmp_path, monkeypatch, PLAN, {"pool": "nvidia", "fault": "slow", "times": 4})
    assert answer.certified
    assert [one.passes for one in answer.targets] == [True, False]
    assert not answer.good
    amd, nvidia = (one.cells[0] for one in answer.targets)
    assert len(amd.usable) == len(nvidia.usable) == 2
    assert amd.tpot is not None
    assert nvidia.tpot is not None
    assert nvidia.tpot.median > 3 * amd.tpot.median
    assert answer.targets[0].usd_per_mtok is not None
    assert answer.to_dict()["schema"] == "penstock.bench/1"
    assert json.loads((tmp_path / "b" / "parity.json").read_text())["kv_dtype"]["standing"] == "same"


def test_servers_that_cannot_be_compared_are_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = served(tmp_path, monkeypatch, PLAN, {"pool": "amd", "difference": "kv", "value": "fp8"})
    assert not answer.certified
    assert not answer.good
    assert not list((tmp_path / "b").glob("*.jsonl"))
    assert answer.certificate is not None
    assert [one.fact.name for one in answer.certificate.having(Standing.REFUSED)] == ["kv_dtype"]


def acceptance(**changes: object) -> str:
    """Return an acceptance benchmark with one case per vendor."""
    case = {
        "workload": "chat",
        "nodes": 1,
        "replicas": 8,
        "model": "llama-3.1-8b",
        "weights": "bf16",
        "kv": "bf16",
        "engine": "vllm",
        "split": {"tp": 1, "pp": 1, "dp": 1, "ep": False},
        "drafted_tokens": 0,
        "lengths": [{"input_tokens": 64, "output_tokens": 8, "share_fraction": 1.0}],
        "slo": {"ttft_s": 0.5, "tpot_s": 0.05, "e2e_s": None, "attainment_fraction": 0.95},
        "loads": [{"name": "peak", "requests_per_s": 20.0, "requests": 40, "at_least_fraction": 0.95}],
        "node_watts_at_most": 8000.0,
        **changes,
    }
    cases = [
        {"name": f"chat-{accelerator}", "accelerator": accelerator, "vendor": vendor, **case}
        for accelerator, vendor in (("mi300x", "amd"), ("h100_sxm", "nvidia"))
    ]
    return str(yaml.safe_dump({"version": 1, "plan": "small", "arrivals": "poisson", "cases": cases}, sort_keys=False))


def served_undisturbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *asked: Any) -> BenchAnswer:  # noqa: ANN401
    """Measure again if a run is undetermined, because this machine was late."""
    for number in range(3):
        (tmp_path / str(number)).mkdir()
        answer = served(tmp_path / str(number), monkeypatch, *asked)
        if all(one.passes is not None for one in answer.targets):
            break
    return answer


def test_acceptance_passes_or_fails_each_vendor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = served_undisturbed(tmp_path, monkeypatch, acceptance(), {"pool": "amd", "fault": "slow", "times": 4})
    assert [one.passes for one in answer.targets] == [False, True]
    assert answer.targets[1].target.price_source == "catalog rent of 8 h100_sxm"
    assert answer.targets[1].usd_per_mtok is not None


def test_a_server_that_is_not_what_was_ordered_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = served(tmp_path, monkeypatch, acceptance(kv="fp8"))
    assert not answer.certified
    assert {one.fact.name for one in answer.required} == {"kv_dtype"}
    assert all(one.passes is None for one in answer.targets)
