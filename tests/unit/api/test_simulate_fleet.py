"""A fleet file is simulated under several policies on the same requests, and what happens to it is typed in lines."""

from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import penstock
from examples import deployment
from penstock.api.arguments.fleet_argument import fleet_choice
from penstock.api.arguments.fleet_events import fleet_events_argument
from penstock.errors import UsageError
from penstock.fleet.deployment import Parallelism
from penstock.fleet.disaggregated_replica import Disaggregated
from penstock.fleet.pools import Fleet, Pool, PoolEngine, Route
from penstock.performance.shipped.shipped_disaggregated import shipped_phase_factors
from penstock.performance.shipped.shipped_runs import shipped_efficiencies
from penstock.planning.candidates.disaggregated_screen import UnitScreen
from penstock.planning.candidates.queueless_screen import QueuelessScreen
from penstock.planning.candidates.replica_capacity import Option
from penstock.planning.spec.plan_types import Bucket
from penstock.planning.verification.pool_simulator import Simulator
from penstock.planning.verification.simulated_capacity import PoolLoad
from penstock.simulation.compare_policies import LoadSpike, with_load_spike
from penstock.workload import parse_slo
from penstock.workload.slo import Slo
from simulated import conversation_lengths, pool

FLEET = Path(__file__).resolve().parents[3] / "examples" / "fleets" / "chat-h100-mi300x.yaml"
POOLS = [pool(name="h100", replicas=2), pool(name="mi300x", replicas=3)]


def test_policies_are_compared_on_the_same_requests() -> None:
    answer = penstock.simulate_fleet(FLEET, policy="penstock,round-robin,static-weight", requests=600, sampled_every=50)
    assert [row["policy"] for row in answer.rows()] == ["penstock", "round-robin", "static-weight"]
    assert {run.outcome.requests for run in answer.runs} == {600}
    assert len(answer.runs[0].samples) == 600 / 50
    document = answer.to_dict()
    assert document["schema"] == "penstock.simulate-fleet/5"
    assert answer.good
    for run in answer.runs:
        assert sum(row.requests for row in run.destinations) == 600
        assert all(sum(row.shares) == pytest.approx(1.0) for row in run.destinations)


def test_without_a_trace_requests_are_as_long_as_the_routes_say() -> None:
    fleet = fleet_choice(FLEET)
    short = replace(fleet.routes[0], input_tokens=200, output_tokens=50, peak_requests_per_s=9.0)
    long = replace(fleet.routes[0], input_tokens=6_000, output_tokens=100, peak_requests_per_s=1.0)
    asked = replace(fleet, routes=(short, long))
    (run,) = penstock.simulate_fleet(asked, requests=500).runs
    served = run.outcome.served
    assert served is not None
    for inputs, outputs in ((200, 50), (6_000, 100)):
        answers = served.output_tokens[served.input_tokens == inputs]
        assert answers.size
        assert 0.9 * outputs <= answers.min() < answers.max() <= 1.1 * outputs
    assert np.mean(served.input_tokens == 200) == pytest.approx(0.9, abs=0.04)
    (typed,) = penstock.simulate_fleet(asked, requests=50, input_tokens=300).runs
    assert typed.outcome.served is not None
    assert set(typed.outcome.served.input_tokens.tolist()) == {300}


def test_answers_vary_as_in_plans() -> None:
    """Equal answers end in the same step: a fleet planned for 95% kept 93% here, and 99.8% with varied answers."""
    fleet = fleet_choice(FLEET)
    one = replace(fleet, routes=fleet.routes[:1])
    (run,) = penstock.simulate_fleet(one, requests=500).runs
    served = run.outcome.served
    assert served is not None
    output = fleet.routes[0].output_tokens
    assert 0.9 * output <= served.output_tokens.min() < served.output_tokens.max() <= 1.1 * output


def test_a_list_of_policies_is_refused_in_one_line() -> None:
    with pytest.raises(UsageError, match="in one text with commas"):
        penstock.simulate_fleet(FLEET, policy=["penstock", "round-robin"], requests=10)  # type: ignore[arg-type]


def test_each_route_has_its_own_slo() -> None:
    fleet = fleet_choice(FLEET)
    quick = replace(fleet.routes[0], workload="quick", input_tokens=200, output_tokens=50, peak_requests_per_s=3.0)
    hopeless = replace(quick, workload="hopeless", input_tokens=300, slo=parse_slo("ttft=1ms"), peak_requests_per_s=1.0)
    answer = penstock.simulate_fleet(replace(fleet, routes=(quick, hopeless)), requests=400)
    first, second = answer.runs[0].outcome.classes
    assert (first.name, second.name) == ("quick", "hopeless")
    assert (first.met_fraction, second.met_fraction) == (1.0, 0.0)
    assert second.requests / 400 == pytest.approx(0.25, abs=0.08)
    with pytest.raises(UsageError, match="different SLOs"):
        penstock.simulate_fleet(replace(fleet, routes=(quick, hopeless)), requests=10, input_tokens=100)


def test_each_model_of_a_fleet_is_simulated_with_its_own_requests() -> None:
    fleet = fleet_choice(FLEET)
    (h100, mi300x), route = fleet.pools, fleet.routes[0]
    small = replace(mi300x, name="small", model="mistral-7b", replicas=1)
    mine = replace(route, workload="large", weights={h100.name: 0.5, mi300x.name: 0.5}, peak_requests_per_s=6.0)
    others = replace(route, workload="small", weights={"small": 1.0}, peak_requests_per_s=2.0, slo=parse_slo("ttft=5s"))
    both = replace(fleet, pools=(h100, mi300x, small), routes=(mine, others))
    answer = penstock.simulate_fleet(both, requests=400, events=[f"slow {h100.name}/0 x2", "slow small/0 x2"])
    assert [(row["model"], row["requests"]) for row in answer.rows()] == [(h100.model, 300), ("mistral-7b", 100)]
    assert [len(part.events.faults) for part in (answer, *answer.others)] == [1, 1]
    alone = penstock.simulate_fleet(
        replace(fleet, routes=(mine,)), requests=300, events=[f"slow {h100.name}/0 x2"], rate=6.0
    )
    assert alone.rows()[0] == answer.rows()[0]
    assert answer.to_dict()["others"][0]["model"] == "mistral-7b"  # type: ignore[index]
    with pytest.raises(UsageError, match="a trace is of one model"):
        penstock.simulate_fleet(both, trace="requests.csv")


def test_what_happens_is_read_line_by_line() -> None:
    lines = [
        "death of mi300x/2 at 60s for 30s",
        "slow h100/1 x4",
        "silence of h100/0 at 5s",
        "loss 5%",
        "crowd x3 at 1min for 20s",
    ]
    read = fleet_events_argument(lines, POOLS)
    assert [(fault.kind, fault.replica) for fault in read.faults] == [("dies", 4), ("slow", 1), ("silent", 0)]
    assert (read.faults[0].at_s, read.faults[0].for_s, read.faults[1].factor) == (60.0, 30.0, 4.0)
    assert read.report_loss == 0.05
    assert read.load_spikes == (LoadSpike(factor=3.0, at_s=60.0, for_s=20.0),)


def test_of_several_losses_the_largest_counts() -> None:
    assert fleet_events_argument(["loss 5%", "loss 50%", "loss 20%"], POOLS).report_loss == 0.5


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("flood h100/0", "write `death of"),
        ("death of h100/7 at 1s", "h100/0 to h100/1"),
        ("slow b200/0 x3", "names no replica"),
        ("crowd x3", "write `crowd x3 at 60s for 20s`"),
        ("loss", "write"),
        ("loss 5% at 60s", "whole run; use `loss 5%` without"),
        ("death of h100/0 at noon", "write 50ms"),
    ],
)
def test_a_line_that_cannot_happen_says_the_fix(line: str, fix: str) -> None:
    with pytest.raises(UsageError, match=fix) as caught:
        fleet_events_argument([line], POOLS)
    assert len(str(caught.value).splitlines()) == 1


def test_a_crowd_brings_as_many_times_the_requests_and_loses_none() -> None:
    sent = conversation_lengths(4_000, 10.0)
    (block,) = with_load_spike([sent], [LoadSpike(factor=3.0, at_s=100.0, for_s=20.0)])
    assert len(block) == 4_000
    inside = ((block.arrival_s >= 100.0) & (block.arrival_s < 120.0)).sum()
    assert inside == ((sent.arrival_s >= 100.0) & (sent.arrival_s < 160.0)).sum()


def test_a_policy_nobody_knows_is_refused() -> None:
    with pytest.raises(UsageError, match="use one of penstock"):
        penstock.simulate_fleet(FLEET, policy="best")


def test_prefill_and_decode_pools_are_laid_out_as_a_plan_simulates_them() -> None:
    screen = UnitScreen(QueuelessScreen(shipped_efficiencies()), shipped_phase_factors())
    ahead = deployment("deepseek-r1", "b200", tp=8, engine="trtllm")
    after = deployment("deepseek-r1", "b200", dp=8, ep=True, engine="trtllm")
    unit = Disaggregated(prefill=ahead, prefill_replicas=1, decode=after, decode_replicas=2, kv_bytes_per_s=4e11)
    option = Option(id="unit", weights="fp8", deployment=after, measured_engine="trtllm", disaggregated=unit)
    bucket, slo = Bucket(input_tokens=8192, output_tokens=1024), parse_slo("ttft=5s,tpot=30ms")
    load = PoolLoad(option=option, replicas=2, mix=((bucket, 1.0),), requests_per_s=8.0, slo=slo)
    planned = Simulator(screen.loop, units=screen).pools(load)
    answer = penstock.simulate_fleet(_fleet(unit, slo), policy="round-robin", requests=400)
    for here, there in zip(planned, answer.pools, strict=True):
        assert replace(here, name="", usd_per_hour=None) == replace(there, name="", usd_per_hour=None, vendor="")
    (run,) = answer.runs
    assert run.outcome.requests == 400
    # Attack: "sent to after 100%", which no policy decides; prompts go to those that prefill.
    assert all(row.shares == (1.0, 0.0) for row in run.destinations)
    assert run.outcome.served is not None
    assert set(run.outcome.served.picked.tolist()) == {0, 1}
    assert min(run.outcome.served.replica.tolist()) > 1
    console = Console(file=StringIO(), width=160, color_system=None)
    console.print(answer.render(160))
    assert "to ahead" in console.file.getvalue()  # type: ignore[attr-defined]
    assert "to after" not in console.file.getvalue()  # type: ignore[attr-defined]


def _fleet(unit: Disaggregated, slo: Slo) -> Fleet:
    common = Pool(
        name="ahead",
        model="deepseek-r1",
        weights="fp8",
        kv=unit.decode.chosen_cache_dtype.value,
        accelerator="b200_sxm",
        vendor="nvidia",
        site="main",
        replicas=2,
        split=Parallelism(tp=8),
        engine=PoolEngine(name="trtllm", version="unstated"),
        role="prefill",
        feeds="after",
        kv_bytes_per_s=4e11,
    )
    after = replace(
        common,
        name="after",
        role="decode",
        replicas=4,
        split=Parallelism(dp=8, expert_parallel=True),
        feeds=None,
        kv_bytes_per_s=None,
    )
    route = Route(
        workload="long",
        input_tokens=8192,
        output_tokens=1024,
        slo=slo,
        peak_requests_per_s=8.0,
        weights={"ahead": 1.0},
    )
    return Fleet(name="apart", nodes=(), pools=(common, after), routes=(route,))


def test_several_pools_that_decode_are_not_simulated_as_one() -> None:
    slo = parse_slo("ttft=5s,tpot=30ms")
    replica = deployment("deepseek-r1", "b200", tp=8)
    one = _fleet(Disaggregated(prefill=replica, prefill_replicas=1, decode=replica, decode_replicas=1), slo)
    ahead, after = one.pools
    more = (replace(ahead, name="ahead 2", feeds="after 2"), replace(after, name="after 2"))
    with pytest.raises(UsageError, match="only one decode pool with its prefill pools"):
        penstock.simulate_fleet(replace(one, pools=(*one.pools, *more)), requests=10)
