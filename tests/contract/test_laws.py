"""Laws that hold between public answers, whatever the numbers are."""

import csv
import json
import math
from math import fsum
from pathlib import Path
from typing import Any

import pytest
import yaml

from contract.conftest import Ask

SMALL = "llama-3.1-8b"
QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
HALF_A_BIN = 6e-4
"""Relative: latencies are kept in bins 0.1% wide, and a quantile is the middle of its bin."""


def write_trace(path: Path, lengths: list[tuple[int, int]], apart_s: float = 100.0) -> None:
    """Write requests so far apart that each is alone."""
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["arrival_s", "input_tokens", "output_tokens"])
        rows.writerows([place * apart_s, *length] for place, length in enumerate(lengths))


def simulated(ask: Ask, words: str) -> Any:  # noqa: ANN401 - JSON
    (deployment,) = ask(f"simulate {SMALL} --on h100 {words} --json").json["deployments"]
    return deployment


def planned(ask: Ask, folder: Path, **changes: object) -> Any:  # noqa: ANN401 - JSON
    """The answer to the rented plan with some keys of its workload changed."""
    plan = yaml.safe_load((folder / "rent.yaml").read_text())
    plan["draws"] = 100
    plan["workloads"][0] = {key: value for key, value in plan["workloads"][0].items() if key != "users"} | changes
    (folder / "changed.yaml").write_text(yaml.safe_dump(plan))
    return ask("plan changed.yaml --json").json["answer"]["winner"]


@pytest.mark.parametrize("number", [7, 10, 20])
def test_quantile_is_the_value_at_its_rank(number: int, ask: Ask, folder: Path) -> None:
    """The rank is the fraction of the requests rounded up: of 7, the median is the fourth, not the third."""
    lengths = [(400 + 900 * place, 8) for place in range(number)]
    alone = []
    for length in lengths[:10]:
        write_trace(folder / "alone.csv", [length])
        alone.append(simulated(ask, "--trace alone.csv")["latency"]["ttft_s"]["max"])
    # Those beyond ten repeat the first ten, so that each value is known.
    write_trace(folder / "all.csv", [lengths[place % 10] for place in range(number)])
    by_hand = sorted(alone[place % 10] for place in range(number))
    found = simulated(ask, "--trace all.csv")["latency"]["ttft_s"]
    for name, fraction in QUANTILES.items():
        rank = -(-round(fraction * 100) * number // 100)
        assert found[name] == pytest.approx(by_hand[rank - 1], rel=HALF_A_BIN), name
    assert found["max"] == pytest.approx(by_hand[-1], rel=1e-9)
    assert found["mean"] == pytest.approx(fsum(by_hand) / number, rel=1e-9)


@pytest.mark.parametrize(("missed", "kept"), [(1, True), (2, False)])
def test_exactly_the_target_is_kept(missed: int, kept: bool, ask: Ask, folder: Path) -> None:  # noqa: FBT001 - a table
    write_trace(folder / "edge.csv", [(30_000 if place < missed else 500, 8) for place in range(20)])
    answer = ask(f"simulate {SMALL} --on h100 --trace edge.csv --slo ttft=300ms,tpot=1s,attain=95% --json")
    (judged,) = answer.json["deployments"][0]["classes"]
    assert judged["met_fraction"] == (20 - missed) / 20
    assert judged["attained"] is kept
    assert answer.exit_code == int(not kept)


@pytest.mark.parametrize("on", ["h100:4", "mi300x:2", "b200:8"])
def test_rate_per_device_is_the_total_shared(on: str, ask: Ask) -> None:
    (deployment,) = ask(f"predict llama-3.1-70b --on {on} --precision fp8 --json").json["deployments"]
    whole, each = deployment["output_tokens_per_s"]["value"], deployment["output_tokens_per_s_per_device"]
    assert deployment["devices"] == int(on.partition(":")[2])
    assert each * deployment["devices"] == pytest.approx(whole, rel=1e-12)


def test_price_of_tokens_is_rent_over_rate(ask: Ask) -> None:
    for deployment in ask(f"predict {SMALL} --on h100:2,mi300x --json").json["deployments"]:
        rent_per_s = deployment["rent"]["usd_per_device"] * deployment["devices"] / 3600
        rate = deployment["output_tokens_per_s"]
        usd = deployment["usd_per_output_mtok"]
        for at, of in (("value", "value"), ("low", "high"), ("high", "low")):
            assert usd[at] == pytest.approx(1e6 * rent_per_s / rate[of], rel=1e-12)


def test_joules_are_watts_over_rate(ask: Ask) -> None:
    (deployment,) = ask(f"predict {SMALL} --on h100:2 --json").json["deployments"]
    watts = deployment["energy"]["device_watts"]["value"] * deployment["devices"]
    joules = deployment["energy"]["joules_per_output_token"]["value"]
    assert joules == pytest.approx(watts / deployment["output_tokens_per_s"]["value"], rel=1e-9)


def test_one_load_of_a_sweep_is_a_prediction(ask: Ask) -> None:
    words = f"predict {SMALL} --on h100 --json --concurrency"
    alone = ask(f"{words} 16").json["deployments"][0]
    sweep = json.dumps(ask(f"{words} 1,16").json)
    for value in (alone["output_tokens_per_s"]["value"], alone["tpot_s"]["value"], alone["ttft_s"]["value"]):
        assert repr(value) in sweep


def test_more_requests_never_slow_the_whole(ask: Ask) -> None:
    rates, times = [], []
    for users in (1, 4, 16, 64):
        (deployment,) = ask(f"predict {SMALL} --on h100 --concurrency {users} --json").json["deployments"]
        rates.append(deployment["output_tokens_per_s"]["value"])
        times.append(deployment["tpot_s"]["value"])
    assert rates == sorted(rates)
    assert times == sorted(times)


def test_k_is_1024_tokens(ask: Ask) -> None:
    assert ask(f"fit {SMALL} --on h100 --context 32k --json").json["context_tokens"] == 32_768
    assert ask(f"fit {SMALL} --on h100 --context 32768 --json").json["context_tokens"] == 32_768
    words = f"predict {SMALL} --on h100 --out 1k --json --in"
    assert ask(f"{words} 32k").json == ask(f"{words} 32768").json
    words = f"simulate {SMALL} --on h100 --rate 1 --requests 5 --json --in"
    assert ask(f"{words} 4k").json == ask(f"{words} 4096").json


def test_memory_is_printed_in_gib(ask: Ask) -> None:
    placed = ask(f"fit {SMALL} --on mi300x --json").json["deployments"][0]
    text = ask(f"fit {SMALL} --on mi300x").stdout
    for count_bytes in (placed["budget"]["device_bytes"], placed["budget"]["weight_bytes"]):
        assert f"{count_bytes / 2**30:,.1f}" in text
        assert f"{count_bytes / 1e9:,.1f}" not in text


@pytest.mark.parametrize("words", ["llama-3.1-70b --on h200:2", "deepseek-r1 --on mi300x:8 --context 32k --kv fp8"])
def test_memory_adds_up_to_the_device(words: str, ask: Ask) -> None:
    for placed in ask(f"fit {words} --json").json["deployments"]:
        budget, capacity = placed["budget"], placed["capacity"]
        parts = ("weight", "activation", "runtime", "graph", "kv", "unused")
        assert sum(budget[f"{part}_bytes"] for part in parts) == budget["device_bytes"]
        assert budget["weight_bytes"] == sum(budget["weight_bytes_by_part"].values())
        assert capacity["low_tokens"] <= capacity["tokens"] <= capacity["high_tokens"]


def test_longer_contexts_hold_fewer_requests(ask: Ask) -> None:
    held = []
    for context in ("1k", "8k", "32k", "128k"):
        (placed,) = ask(f"fit {SMALL} --on h100 --context {context} --json").json["deployments"]
        held.append(placed["capacity"]["concurrent_requests"])
        assert placed["capacity"]["tokens"] >= held[-1] * placed["capacity"]["context_tokens"]
    assert held == sorted(held, reverse=True)
    assert held[0] > held[-1] > 0


def test_same_seed_is_the_same_run(ask: Ask) -> None:
    words = "--rate 6 --requests 40 --arrivals gamma:2 --seed"
    first, again, other = (simulated(ask, f"{words} {seed}") for seed in (4, 4, 5))
    assert first == again
    assert first["latency"] != other["latency"]


def test_every_request_is_counted_once(ask: Ask) -> None:
    words = ["simulate", "--fleet", "chat-h100-mi300x.yaml", "--rate", "40", "--requests", "200"]
    found = ask([*words, "--event", "loss 5%", "--slo", "ttft=1s,tpot=50ms", "--json"]).json
    (policy,) = found["policies"]
    ends = ("served", "refused", "oversized", "lost")
    assert sum(policy[end] for end in ends) == policy["requests"] == 200


def test_users_are_rate_times_time(ask: Ask) -> None:
    """Little: users in a closed loop are requests per second times seconds per request, but for the tail."""
    found = simulated(ask, "--users 8 --requests 160 --in 512 --out 64")
    in_flight = found["served"] / found["makespan_s"] * found["latency"]["e2e_s"]["mean"]
    assert in_flight == pytest.approx(8, rel=0.08)
    assert in_flight <= 8 * (1 + 1e-9)


def test_quantiles_are_in_order(ask: Ask) -> None:
    found = simulated(ask, "--rate 12 --requests 60")
    for latency in found["latency"].values():
        values = [latency[name] for name in (*QUANTILES, "max")]
        assert values == sorted(values)
    assert found["goodput_tokens_per_s"] <= found["output_tokens_per_s"]


@pytest.mark.parametrize("idle", ["separate", "spread"])
def test_bill_adds_up_to_the_rent(idle: str, ask: Ask) -> None:
    words = f"bill ended.jsonl --fleet addressed.yaml --idle {idle} --from 2026-11-01 --to 2026-11-01T02:00 --json"
    found = ask(words).json
    assert found["rent_usd"] == pytest.approx(2 * (2 * 2.5 + 2 * 2.0), rel=1e-12)
    assert fsum([*(line["usd"] for line in found["tenants"]), found["idle_usd"]]) == pytest.approx(9 * 2, rel=1e-9)
    assert (found["idle_usd"] == 0) is (idle == "spread")


def test_own_policy_agrees_with_its_decisions(ask: Ask) -> None:
    (ours,) = ask("receipts decisions.jsonl --policy penstock --json").json["policies"]
    assert ours["agreed_fraction"] == 1
    assert sum(ours["sent"].values()) == 5


def test_more_load_is_never_cheaper(ask: Ask, folder: Path) -> None:
    costs = [planned(ask, folder, requests_per_s=rate)["cost_usd"] for rate in (5, 25, 26, 120)]
    assert costs == sorted(costs)
    assert costs[0] < costs[-1]


@pytest.mark.parametrize("plan", ["bought.yaml", "contract-growth.yaml"])
def test_plan_lines_add_up(plan: str, ask: Ask) -> None:
    winner = ask(f"plan {plan} --json").json["answer"]["winner"]
    cost = winner["cost"]
    assert fsum(line["usd"] for line in cost["lines"]) == pytest.approx(cost["total_usd"], rel=1e-9)
    assert fsum(step["usd"] for step in cost["waterfall"]["steps"]) == pytest.approx(cost["total_usd"], rel=1e-9)
    assert fsum(item["usd"] for item in cost["workloads"]) == pytest.approx(cost["total_usd"], rel=1e-9)
    assert winner["cost_usd"] == pytest.approx(cost["total_usd"], rel=1e-9)
    spent = ("capex_usd", "rent_usd", "running_usd", "people_usd")
    quarters, years = (fsum(part[key] for part in winner["cash"][by] for key in spent) for by in ("quarters", "years"))
    assert quarters == pytest.approx(years, rel=1e-9)


def test_planned_fleet_keeps_its_slo_in_simulation(ask: Ask) -> None:
    assert ask("plan bought.yaml --fleet fleet.yaml").exit_code == 0
    words = "simulate --fleet fleet.yaml --rate 40 --requests 300 --slo ttft=1s,tpot=50ms --json"
    answer = ask(words)
    assert answer.exit_code == 0, answer.stdout[:400]


def test_plan_sustains_what_simulate_sustains(ask: Ask) -> None:
    """Both find the highest rate of one replica within the SLO; they draw lengths and arrivals by themselves."""
    plan = ask("plan rent.yaml --json").json
    (capacity,) = plan["candidates"][0]["capacities"]
    words = f"simulate {SMALL} --on h100 --capacity --slo ttft=1s,tpot=50ms --rate 4 --requests 100 --in 1024 --out 256"
    found = ask(f"{words} --json").json["deployments"][0]["capacity"]
    assert found["rate_per_s"]["value"] == pytest.approx(capacity["requests_per_s"]["value"], rel=0.25)


def test_weights_of_exports_are_weights_of_vendors(ask: Ask) -> None:
    found = yaml.safe_load(ask("export addressed.yaml --to litellm").stdout)
    weights = [entry["litellm_params"]["weight"] for entry in found["model_list"]]
    assert len(weights) == 4
    assert weights[0] == weights[1]
    assert weights[2] == weights[3]
    assert all(math.isfinite(weight) and weight > 0 for weight in weights)


def test_difference_is_the_ratio_of_both_shown(ask: Ask) -> None:
    rows, mirrored = (ask(f"catalog diff {pair} --json").json["rows"] for pair in ("mi300x h100", "h100 mi300x"))
    assert len(rows) == len(mirrored) > 20
    for row, other in zip(rows, mirrored, strict=True):
        assert (row["left"], row["right"]) == (other["right"], other["left"])
        if row["ratio"]:
            assert row["ratio"] == pytest.approx(row["left"] / row["right"], rel=1e-12)
