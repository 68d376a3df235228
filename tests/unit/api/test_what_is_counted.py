"""Whatever a fleet's run says of requests, seconds and dollars is of one set of requests and one span."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.api.arguments.fleet_argument import fleet_choice
from penstock.api.simulate_fleet import SimulateFleetAnswer
from penstock.errors import UsageError
from penstock.fleet.pools import Fleet
from penstock.report.simulate.heading import arrivals_sentence
from penstock.workload import AsRecorded, Fixed, Poisson, Workload, read_trace
from simulated import drawn

FLEETS = Path(__file__).resolve().parents[3] / "examples" / "fleets"
SMALL = FLEETS / "chat-h100-mi300x.yaml"
LARGE = FLEETS / "chat-70b-h100-mi300x.yaml"


def policies(answer: SimulateFleetAnswer) -> list[Any]:
    told = answer.to_dict()["policies"]
    assert isinstance(told, list)
    return told


def trace(folder: Path, rows: list[tuple[float, int, int]]) -> Path:
    path = folder / "requests.csv"
    lines = [f"{arrival_s},{inputs},{outputs}" for arrival_s, inputs, outputs in rows]
    path.write_text("\n".join(["arrival_s,input_tokens,output_tokens", *lines]), encoding="utf-8")
    return path


def test_busy_and_idle_are_all_there_is_and_littles_law_holds_of_every_policy() -> None:
    """Attack: busy 1.000 and idle 0.438, and 493 requests there where arrivals times seconds are 280."""
    answer = penstock.simulate_fleet(LARGE, policy="penstock,round-robin,least-request", rate=9.0, requests=400)
    assert len({run.outcome.makespan_s for run in answer.runs}) > 1
    overhead_s = np.mean([one.replica.request_s for one in answer.pools])
    for told in policies(answer):
        for one in told["pools"]:
            assert one["busy_fraction"] + one["idle_fraction"] == pytest.approx(1.0)
            mine = [replica for replica in told["replicas"] if replica["pool"] == one["name"]]
            assert one["busy_fraction"] == pytest.approx(np.mean([replica["busy_fraction"] for replica in mine]))
            assert one["mean_waiting"] == pytest.approx(sum(replica["mean_waiting"] for replica in mine))
        there = sum(one["mean_in_batches"] + one["mean_waiting"] for one in told["pools"])
        arrivals_per_s = told["served"] / told["span_s"]
        assert there == pytest.approx(arrivals_per_s * (told["e2e_s"]["mean"] - overhead_s), rel=0.02)


def test_the_busy_column_is_over_the_span_that_is_paid() -> None:
    answer = penstock.simulate_fleet(LARGE, policy="penstock,round-robin", rate=9.0, requests=300)
    for run in answer.runs:
        busy = [replica.busy_fraction for replica in run.outcome.replicas]
        assert f"{min(busy):.0%}-{max(busy):.0%}" in drawn(answer)


def test_a_span_ends_when_a_client_sees_the_last_token(tmp_path: Path) -> None:
    """Attack: one request of 20 tokens in 122 ms had 186 tokens/s, which is 20 in 107."""
    alone = trace(tmp_path, [(0.0, 100, 20)])
    (told,) = policies(penstock.simulate_fleet(SMALL, trace=alone))
    assert told["span_s"] == pytest.approx(told["e2e_s"]["max"])
    assert told["output_tokens_per_s"] == pytest.approx(20 / told["e2e_s"]["max"])
    (told,) = policies(penstock.simulate_fleet(SMALL, rate=1e9, requests=300))
    assert told["span_s"] == pytest.approx(told["e2e_s"]["max"], rel=1e-5)
    plain = penstock.simulate("llama-3.1-8b", "h100:1", trace=alone).to_dict()["deployments"][0]  # type: ignore[index]
    assert plain["makespan_s"] == pytest.approx(plain["latency"]["e2e_s"]["max"])


def test_a_request_that_fits_nowhere_is_one_miss_and_not_the_end_of_a_promise(tmp_path: Path) -> None:
    """Attack: one of 2,000 was too long, and SLO met 100.0% stood above "no policy keeps every promise"."""
    rows = [(row / 10, 200_000 if row == 50 else 1024, 200) for row in range(200)]
    asked = trace(tmp_path, rows)
    answer = penstock.simulate_fleet(SMALL, trace=asked, policy="penstock,round-robin", slo="ttft=5s,attain=95%")
    for told in policies(answer):
        assert (told["requests"], told["served"], told["refused"], told["oversized"]) == (200, 199, 0, 1)
        (kind,) = told["classes"]
        assert (kind["requests"], kind["served"], kind["oversized"]) == (200, 199, 1)
        assert told["worst_met_fraction"] == kind["met_fraction"] == 199 / 200
        assert told["met"]
        assert kind["attained"]
    assert answer.good
    assert "99.5%" in drawn(answer)
    assert "Meets every SLO: penstock, round-robin." in drawn(answer)
    assert "1 request fits no pool" in drawn(answer)
    strict = penstock.simulate_fleet(SMALL, trace=asked, slo="ttft=5s,attain=99.9%")
    assert not strict.good
    assert not penstock.simulate_fleet(replace_slo(SMALL), trace=asked).good, "where nothing is promised all are served"


def replace_slo(path: Path) -> Fleet:
    """Promise nothing."""
    fleet = fleet_choice(path)
    return replace(fleet, routes=())


def test_half_refused_is_half_kept_with_and_without_a_fleet(tmp_path: Path) -> None:
    """Attack: two of four were refused and SLO met was 100.0%."""
    asked = trace(tmp_path, [(float(row), 200_000 if row % 2 else 1000, 20) for row in range(4)])
    assert "50.0%" in drawn(penstock.simulate_fleet(SMALL, trace=asked, slo="ttft=5s"))
    plain = penstock.simulate("llama-3.1-8b", "h100:1", trace=asked, slo="ttft=5s")
    assert "50.0%" in drawn(plain)
    assert "misses the SLO" in drawn(plain)
    kept = penstock.simulate("llama-3.1-8b", "h100:1", trace=asked, slo="ttft=5s,attain=50%")
    assert "meets the SLO" in drawn(kept)
    told = kept.to_dict()["deployments"][0]  # type: ignore[index]
    assert (told["requests"], told["served"], told["oversized"], told["met"]) == (4, 2, 2, True)


def test_a_fleets_document_says_all_that_was_asked() -> None:
    """Attack: a day's hours, the rate and the seed were nowhere, so that a document could not be made again."""
    answer = penstock.simulate_fleet(SMALL, rate=20.0, arrivals="diurnal:4", requests=500, seed=3)
    asked = answer.to_dict()["workload"]
    assert isinstance(asked, dict)
    assert (asked["requests"], asked["rate_per_s"], asked["seed"], asked["users"]) == (500, 20.0, 3, None)
    assert asked["hours_of_day"]["covered"] == pytest.approx(answer.runs[0].outcome.arrival_span_s / 3600)
    assert "of a day with a mean of 20/s and a peak of" in drawn(answer)


def test_prompts_after_a_system_prompt_are_said_to_be() -> None:
    """Attack: "1,024 in" stood above prompts of 3,072."""
    answer = penstock.simulate_fleet(SMALL, input_tokens=1024, output_tokens=20, system_prompts="4:2048", requests=20)
    assert "1,024 in, 20 out, after one of 4 system prompts of 2,048 tokens" in drawn(answer)


def test_the_beginning_of_a_trace_is_said_to_be_one(tmp_path: Path) -> None:
    """Attack: 0.89 requests/s were run where 1 was asked for, and nothing said why."""
    path = trace(tmp_path, [(float(row), 100, 10) for row in range(50)])
    workload = Workload(name="w", arrivals=AsRecorded(), lengths=read_trace(path), source="s")
    assert arrivals_sentence(workload, requests=20, rate_per_s=2.0, span_s=10.0) == (
        "20 requests, 1.9 requests/s, the first of 50 requests; the whole trace has 2 requests/s"
    )
    assert arrivals_sentence(workload, requests=50, rate_per_s=2.0, span_s=24.5) == "50 requests, 2 requests/s"
    synthetic = Workload(name="w", arrivals=Poisson(), lengths=Fixed(input_tokens=1, output_tokens=1), source="s")
    assert arrivals_sentence(synthetic, requests=1, rate_per_s=1.0, span_s=0.0) == "1 request, 1 requests/s"
    assert arrivals_sentence(synthetic, requests=100, rate_per_s=1e9, span_s=1e-7) == "100 requests, all at once"


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("loss 200%", "at most `loss 100%`"),
        ("slow h100/0 x-3", "has the factor -3; a factor must be above 0"),
        ("crowd x1e9 at 1s for 1s", "has the factor 1e9"),
        ("death of h100/9", "its replicas are h100/0"),
    ],
)
def test_what_cannot_happen_says_why(line: str, fix: str) -> None:
    with pytest.raises(UsageError, match=fix):
        penstock.simulate_fleet(SMALL, events=[line], requests=10)


@pytest.mark.parametrize("policy", ["penstock,,round-robin", "", "penstock,"])
def test_a_comma_without_a_policy_is_refused(policy: str) -> None:
    with pytest.raises(UsageError, match="a comma without a policy"):
        penstock.simulate_fleet(SMALL, policy=policy, requests=10)


def test_one_deployment_and_a_fleet_of_it_mean_the_same_by_who_runs() -> None:
    """Requests in batches over the whole run stand on the basis of those that wait; those of a busy replica apart."""
    told: Any = penstock.simulate("llama-3.1-8b", on="h100", replicas=2, rate=8, requests=400).to_dict()
    (pool,) = told["deployments"][0]["pools"]
    assert pool["mean_in_batches"] == pytest.approx(pool["mean_batch"] * pool["busy_fraction"] * 2)
    assert pool["mean_in_batches"] != pytest.approx(pool["mean_batch"])


def test_the_cache_of_a_run_is_the_one_it_was_asked_to_have() -> None:
    """Attack: bf16 and 327,680 bytes a token of a run whose blocks were those of an FP8 cache."""
    told: list[Any] = [
        penstock.simulate("llama-3.1-8b", on="h100", kv=kv, rate=1, requests=20).to_dict()["model"]
        for kv in ("auto", "fp8")
    ]
    as_stored, halved = told
    assert (as_stored["cache_dtype"], halved["cache_dtype"]) == ("bf16", "fp8")
    assert halved["cache_bytes_per_token"] == as_stored["cache_bytes_per_token"] / 2


def test_answers_a_death_broke_off_are_counted_apart() -> None:
    answer = penstock.simulate_fleet(
        SMALL, policy="penstock,round-robin", rate=10, requests=600, events=["death of h100/0 at 20s for 10s"]
    )
    for told in policies(answer):
        assert told["lost"] > 0
        assert told["served"] + told["refused"] + told["oversized"] + told["lost"] == told["requests"] == 600
        assert sum(one["lost"] for one in told["classes"]) == told["lost"]
    assert "Requests lost because their replica failed after the answer had begun: penstock" in drawn(answer)
