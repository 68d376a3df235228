"""`penstock simulate` as a user runs it."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from conftest import Run
from penstock.catalog import load_prices
from penstock.planning.spec.catalog_prices import hourly_price

pytestmark = pytest.mark.wheel

CHAT = ("llama-3.1-8b", "--in", "512", "--out", "128", "--requests", "2000")


def test_a_run_prints_latencies_and_meets_its_slo(penstock: Run) -> None:
    result = penstock("simulate", *CHAT, "--on", "h100:1", "--rate", "2", "--slo", "ttft=2s,tpot=60ms")
    assert result.returncode == 0, result.stderr
    assert "meets the SLO" in result.stdout
    assert "TTFT p50" in result.stdout


def test_a_missed_slo_is_exit_code_one(penstock: Run) -> None:
    result = penstock("simulate", *CHAT, "--on", "h100:1", "--rate", "2", "--slo", "ttft=1ms")
    assert result.returncode == 1
    assert "misses the SLO" in result.stdout


def test_a_flood_is_called_saturated(penstock: Run) -> None:
    result = penstock("simulate", *CHAT, "--on", "h100:1", "--rate", "5000")
    assert result.returncode == 1
    assert "saturated" in result.stdout


def test_json_is_the_same_twice(penstock: Run) -> None:
    arguments = ("simulate", *CHAT, "--on", "mi300x:1", "--users", "32", "--json")
    first, second = penstock(*arguments), penstock(*arguments)
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout
    document = json.loads(first.stdout)["deployments"][0]
    assert document["requests"] == 2000
    assert document["latency"]["ttft_s"]["p50"] <= document["latency"]["ttft_s"]["p99"]
    assert document["p50_ranges"]["tpot_s"]["low"] < document["p50_ranges"]["tpot_s"]["high"]


def test_a_run_costs_what_a_plan_would_pay_for_its_hours(penstock: Run) -> None:
    rent = hourly_price(load_prices("mi300x"))
    assert rent is not None
    result = penstock("simulate", *CHAT, "--on", "mi300x:2", "--users", "32", "--json")
    document = json.loads(result.stdout)["deployments"][0]
    assert document["usd"] == pytest.approx(2 * rent.value * document["makespan_s"] / 3600)


def drawn_lengths(path: Path, inputs: int, outputs: int, count: int) -> str:
    """As benchmarks draw them, 8/9 to 10/9 of a mean: users whose answers are equally long stay in step."""
    rng = np.random.default_rng(0)
    prompts, answers = (rng.integers(mean * 8 // 9, mean * 10 // 9, count) for mean in (inputs, outputs))
    rows = [f"{number},{prompts[number]},{answers[number]}" for number in range(count)]
    path.write_text("\n".join(("arrived_at,input_tokens,output_tokens", *rows)) + "\n", encoding="utf-8")
    return str(path)


def test_a_closed_loop_that_drafts_takes_what_predict_says(penstock: Run, tmp_path: Path) -> None:
    where = ("deepseek-r1", "--on", "mi355x:8", "--engine", "sglang", "--mtp", "--json")
    trace = drawn_lengths(tmp_path / "trace.csv", 1024, 1024, 400)
    loop = penstock("simulate", *where, "--trace", trace, "--users", "16", "--requests", "400")
    (simulated,) = json.loads(loop.stdout)["deployments"]
    said = penstock("predict", *where, "--in", "1024", "--out", "1024", "--concurrency", "16")
    (predicted,) = json.loads(said.stdout)["deployments"]
    assert simulated["speculation"]["grounds"] == predicted["speculation"]["grounds"]
    assert simulated["latency"]["tpot_s"]["p50"] == pytest.approx(predicted["tpot_s"]["value"], rel=0.05)


def test_a_capacity_has_its_interval(penstock: Run) -> None:
    result = penstock(
        "simulate", *CHAT, "--on", "h100:1", "--rate", "2", "--slo", "ttft=2s,tpot=60ms", "--capacity", "--json"
    )
    found = json.loads(result.stdout)["deployments"][0]["capacity"]
    assert found["rate_per_s"]["low"] <= found["rate_per_s"]["value"] <= found["rate_per_s"]["high"]
    assert found["rate_per_s"]["value"] <= found["saturated_rate_per_s"]


def test_users_who_think_keep_what_an_open_loop_at_their_rate_keeps(penstock: Run) -> None:
    """A plan for 2,000 users was held against users in step, and 0.0% kept their SLO."""
    fleet = ("llama-3.1-70b", "--precision", "fp8", "--on", "mi325x:1", "--replicas", "24", "--engine", "vllm")
    asked = (*fleet, "--in", "2048", "--out", "512", "--slo", "ttft=2s,tpot=70ms,attain=95%", "--json")
    (closed,) = json.loads(penstock("simulate", *asked, "--users", "2000", "--think", "20s").stdout)["deployments"]
    (opened,) = json.loads(penstock("simulate", *asked, "--rate", "42").stdout)["deployments"]
    assert (closed["requests"], closed["classes"][0]["requests"]) == (10_000, 8_000)
    assert closed["classes"][0]["met_fraction"] == pytest.approx(opened["classes"][0]["met_fraction"], abs=0.03)
    assert closed["met"]


def test_prefill_and_decode_apart(penstock: Run) -> None:
    result = penstock("simulate", *CHAT, "--on", "h100:1", "--rate", "2", "--prefill", "1", "--kv-gbps", "50", "--json")
    pools = json.loads(result.stdout)["deployments"][0]["pools"]
    assert [pool["name"] for pool in pools] == ["h100_sxm prefill", "h100_sxm decode"]


def test_prompts_and_answers_apart_are_predicted_as_they_are_simulated(penstock: Run, tmp_path: Path) -> None:
    asked = ("deepseek-r1", "--on", "gb200:8", "--ep", "--replicas", "2", "--prefill", "1", "--prefill-split", "dp4,ep")
    served = ("--precision", "nvfp4", "--engine", "trtllm", "--json")
    trace = drawn_lengths(tmp_path / "trace.csv", 1024, 512, 4000)
    predicted = penstock("predict", *asked, *served, "--in", "1024", "--out", "512", "--concurrency", "64")
    simulated = penstock("simulate", *asked, *served, "--trace", trace, "--users", "64", "--requests", "4000")
    (fast,) = json.loads(predicted.stdout)["deployments"]
    (slow,) = json.loads(simulated.stdout)["deployments"]
    assert fast["devices"] == 2 * 8 + 4
    assert (fast["tier"], slow["tier"]) == ("calibrated", "calibrated")
    assert slow["prefill_parallelism"]["dp"] == 4
    assert slow["output_tokens_per_s"] == pytest.approx(fast["output_tokens_per_s"]["value"], rel=0.08)
    assert slow["latency"]["tpot_s"]["p50"] == pytest.approx(fast["tpot_s"]["value"], rel=0.05)


def test_steps_open_in_perfetto(penstock: Run, tmp_path: Path) -> None:
    target = tmp_path / "run.json"
    assert penstock("simulate", *CHAT, "--on", "h100:1", "--rate", "2", "--perfetto", str(target)).returncode == 0
    events = json.loads(target.read_text(encoding="utf-8"))["traceEvents"]
    steps = [event for event in events if event["ph"] == "X"]
    assert {event["cat"] for event in steps} == {"prefill", "decode", "mixed"}
    assert all(later["ts"] >= earlier["ts"] for earlier, later in pairwise(steps))


def test_a_place_that_cannot_be_written_is_one_line(penstock: Run, tmp_path: Path) -> None:
    target = tmp_path / "missing" / "run.json"
    result = penstock("simulate", *CHAT, "--on", "h100:1", "--rate", "2", "--perfetto", str(target))
    assert result.returncode == 2
    assert "choose another path" in result.stderr.strip().splitlines()[-1]
    assert "Traceback" not in result.stderr


def test_what_does_not_fit_is_said(penstock: Run) -> None:
    result = penstock("simulate", "llama-3.1-70b", "--on", "h100:1", "--rate", "1")
    assert result.returncode == 1
    assert "does not fit" in result.stdout


def test_a_mistake_ends_the_process_with_2(penstock: Run) -> None:
    assert penstock("simulate", *CHAT, "--on", "h100:1").returncode == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "no load is given"),
        (("--rate", "1", "--users", "4"), "give either --users"),
        (("--users", "400", "--think", "2s", "--requests", "700"), "write --requests 800 or more"),
        (("--rate", "1", "--think", "2s"), "--think applies only to a closed loop"),
        (("--rate", "1", "--slo", "ttft=soon"), "is not a time"),
        (("--rate", "1", "--arrivals", "gamma"), "lacks a number"),
        (("--rate", "1", "--prefill", "8"), "--kv-gbps"),
        (("--rate", "1", "--prefill", "1", "--prefill-split", "ranks4"), "is not a valid split"),
        (("--rate", "1", "--route", "random"), "is not a routing policy"),
        (("--rate", "1", "--system-prompts", "many"), "COUNT:TOKENS"),
        (("--rate", "1", "--capacity"), "give an SLO, such as"),
        (("--trace", "missing.csv"), "missing.csv"),
    ],
)
def test_a_wrong_flag_is_one_line(penstock_here: Run, arguments: tuple[str, ...], said: str) -> None:
    result = penstock_here("simulate", *CHAT, "--on", "h100:1", *arguments)
    assert result.returncode in {2, 3}
    assert said in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.shared
def test_public_traces_run(penstock: Run, shared: Path) -> None:
    for name in ("azure_llm_2023_conv.csv", "mooncake_conversation.jsonl"):
        result = penstock(
            "simulate",
            "llama-3.1-8b",
            "--on",
            "mi300x:1",
            "--trace",
            str(shared / "traces" / name),
            "--rate",
            "1",
            "--json",
        )
        document = json.loads(result.stdout)
        assert document["deployments"][0]["requests"] + document["deployments"][0]["oversized"] > 12_000
        hits = document["deployments"][0]["pools"][0]["hit_fraction"]
        assert (hits > 0.03) == name.startswith("mooncake")  # 12,000-token prompts outlive few turns in one cache


def test_a_day_is_tested_at_its_peak_and_the_hours_are_said(penstock: Run) -> None:
    flags = ("--on", "h100:1", "--rate", "10", "--arrivals", "diurnal:4")
    result = penstock("simulate", *CHAT, *flags)
    # 2,000 requests at 1.6 times 10 a second are two minutes from 13:45 on.
    assert "between 13:45 and 13:47 of a day with a mean of 10/s and a peak of 16" in " ".join(result.stdout.split())
    document = json.loads(penstock("simulate", *CHAT, *flags, "--json").stdout)
    hours = document["workload"]["hours_of_day"]
    assert hours == {"first": 13.75, "covered": pytest.approx(2000 / 16 / 3600, rel=0.1)}


def test_requests_beyond_the_context_are_refused_one_by_one(penstock: Run, tmp_path: Path) -> None:
    trace = tmp_path / "long.csv"
    rows = [f"{row},{200_000 if row % 10 == 0 else 1000},100" for row in range(100)]
    trace.write_text("\n".join(["arrival_s,input_tokens,output_tokens", *rows]), encoding="utf-8")
    result = penstock("simulate", "llama-3.1-8b", "--on", "mi300x:1", "--trace", str(trace))
    assert "10 requests are too long for the model's context and not served" in result.stdout
    assert result.returncode == 1
    assert "100 of 100 can be used" in result.stderr
    # The mean of these is longer than the context of 131,072; half of them are not.
    rows = [f"{row},{400_000 if row % 2 == 0 else 1000},100" for row in range(100)]
    trace.write_text("\n".join(["arrival_s,input_tokens,output_tokens", *rows]), encoding="utf-8")
    document = json.loads(
        penstock("simulate", "llama-3.1-8b", "--on", "mi300x:1", "--trace", str(trace), "--json").stdout
    )["deployments"][0]
    assert [document[name] for name in ("requests", "served", "oversized", "beyond_context")] == [100, 50, 50, 50]
