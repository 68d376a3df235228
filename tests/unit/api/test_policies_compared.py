"""Policies are judged alike: over one span, with the weights their operators would set, and shown as they are."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.api.arguments.fleet_argument import fleet_choice
from penstock.api.arguments.static_weights import capacities, load_kinds
from penstock.api.simulate_fleet import SimulateFleetAnswer
from penstock.errors import UsageError
from penstock.report.drawing.attainment import format_attainment
from penstock.routing.records import TUNING
from penstock.simulation.run_options import Fault, RouterVisibility
from penstock.workload import SloClass, parse_slo
from simulated import drawn, pool, requests

FLEETS = Path(__file__).resolve().parents[3] / "examples" / "fleets"
FLEET = FLEETS / "chat-70b-h100-mi300x.yaml"


def sent_to_first(answer: SimulateFleetAnswer) -> Sequence[float]:
    shares = []
    for run in answer.runs:
        counts = np.array([row.requests for row in run.destinations])
        shares.append(float(counts @ np.array([row.shares[0] for row in run.destinations]) / counts.sum()))
    return shares


def test_static_weights_are_the_fleet_files_and_the_others_those_of_this_load() -> None:
    """Attack: weights of the file were ignored, and capacities were those of 1,024 in and 256 out whatever came."""
    described = fleet_choice(FLEET)
    route = replace(described.routes[0], weights={"h100": 0.9, "mi300x": 0.1})
    asked = replace(described, routes=(route,))
    policy = "static-weight,weighted-round-robin"
    short = penstock.simulate_fleet(asked, policy=policy, input_tokens=200, output_tokens=400, requests=600)
    long = penstock.simulate_fleet(asked, policy=policy, input_tokens=6_000, output_tokens=20, requests=600)
    assert [row["policy"] for row in short.rows()] == policy.split(",")
    for answer in (short, long):
        stated, weighed = sent_to_first(answer)
        assert stated == pytest.approx(0.9, abs=0.01)
        kinds = load_kinds(
            next(iter(answer.workload.blocks(seed=0, requests=9, rate_per_s=5.0))), answer.workload.classes
        )
        fast, slow = capacities(answer.pools, kinds)
        assert weighed == pytest.approx(fast / (fast + slow), abs=0.01)
    assert abs(sent_to_first(long)[1] - sent_to_first(short)[1]) > 0.02


def test_a_pool_without_a_weight_is_sent_nothing_that_another_holds() -> None:
    described = fleet_choice(FLEET)
    asked = replace(described, routes=(replace(described.routes[0], weights={"mi300x": 1.0}),))
    assert sent_to_first(penstock.simulate_fleet(asked, policy="static-weight", rate=1.0, requests=100)) == [0.0]


def test_weights_follow_what_each_class_is_promised() -> None:
    """A replica that cannot keep a promise for anybody is weighed as if nothing were promised."""
    pools = [pool(name="one"), pool(name="two", kv_blocks=400)]
    block = requests([0.0] * 4, [(1000, 100)] * 2 + [(200, 10)] * 2, classes=[0, 0, 1, 1])
    classes = [
        SloClass(name="a", share_fraction=0.5, slo=parse_slo("ttft=2s,e2e=9s")),
        SloClass(name="b", share_fraction=0.5),
    ]
    kinds = load_kinds(block, classes)
    assert [(kind.share, kind.input_tokens, kind.ttft_s, kind.e2e_s) for kind in kinds] == [
        (0.5, 1000, 2.0, 9.0),
        (0.5, 200, np.inf, np.inf),
    ]
    one, two = capacities(pools, kinds)
    assert one > two > 0
    impossible = [replace(kind, tpot_s=1e-6) for kind in kinds]
    assert min(capacities(pools, impossible)) > 0


def test_more_pools_than_weights_are_refused() -> None:
    described = fleet_choice(FLEET)
    many = tuple(replace(described.pools[0], name=f"h100-{place}") for place in range(TUNING + 1))
    route = replace(described.routes[0], weights={"h100-0": 1.0})
    with pytest.raises(UsageError, match=f"supports at most {TUNING} pools"):
        penstock.simulate_fleet(replace(described, pools=many, routes=(route,)), policy="static-weight", requests=10)


def test_naming_another_policy_changes_no_figure_of_this_one() -> None:
    """Attack: llm-d had 42,098 tokens a second alone, 30,842 with round-robin and 2,930 with a slower one."""
    asked = {"rate": 9.0, "requests": 400}
    together = penstock.simulate_fleet(FLEET, policy="penstock,round-robin,least-request", **asked)  # type: ignore[arg-type]
    names = [run.policy.name for run in together.runs]
    assert len({run.outcome.makespan_s for run in together.runs}) == len(names)
    for name, told, row in zip(names, _told(together), together.rows(), strict=True):
        alone = penstock.simulate_fleet(FLEET, policy=name, **asked)  # type: ignore[arg-type]
        assert told == _told(alone)[0]
        assert row == alone.rows()[0]
    assert len({told["output_tokens_per_s"] for told in _told(together)}) == len(names)


def _told(answer: SimulateFleetAnswer) -> list[dict[str, Any]]:
    return list(answer.to_dict()["policies"])  # type: ignore[call-overload, no-any-return]


def test_every_policy_pays_until_its_own_last_token() -> None:
    answer = penstock.simulate_fleet(FLEET, policy="penstock,round-robin", rate=9.0, requests=400)
    per_s = sum(one.replicas * (one.usd_per_hour or 0.0) for one in answer.pools) / 3600
    for run, told in zip(answer.runs, _told(answer), strict=True):
        assert told["span_s"] == run.outcome.makespan_s
        assert told["usd"] == pytest.approx(per_s * run.outcome.makespan_s)
        assert told["goodput_tokens_per_s"] * told["span_s"] == pytest.approx(run.good_tokens)
        assert f"{run.policy.name} ${run.usd:,.2f} in" in drawn(answer)


def test_policies_are_ranked_by_good_tokens_and_not_by_who_ends_first() -> None:
    """Attack: fewer good tokens of the same arrivals were called better, because the last request ended sooner."""
    answer = penstock.simulate_fleet(FLEET, policy="penstock", rate=9.0, requests=400)
    (first,) = answer.runs
    fewer = replace(first.outcome.classes[0], good_tokens=first.good_tokens - 1)
    sooner = replace(first.outcome, makespan_s=first.outcome.makespan_s / 2, classes=(fewer,))
    hasty = replace(first, outcome=sooner, policy=replace(first.policy, name="hasty"))
    assert hasty.outcome.goodput_tokens_per_s > first.outcome.goodput_tokens_per_s
    assert "Most tokens within the SLO: penstock. Goodput and cost include the time" in _text(answer, (hasty, first))


def _text(answer: SimulateFleetAnswer, runs: Sequence[object]) -> str:
    return drawn(replace(answer, runs=tuple(runs)))  # type: ignore[arg-type]


def test_nobody_has_the_most_of_nothing() -> None:
    answer = penstock.simulate_fleet(FLEET, policy="penstock,round-robin", slo="tpot=1ms", requests=30)
    assert "No request met its SLO." in drawn(answer)
    assert "Most good tokens" not in drawn(answer)
    assert "None of these policies meets every SLO" in drawn(answer)
    assert "penstock does not meet every SLO" in _text(answer, answer.runs[:1])


@pytest.mark.parametrize(
    ("fraction", "said"), [(0.9495, "94.9%"), (0.95, "95.0%"), (0.963, "96.3%"), (0.99999, "99.9%"), (1.0, "100.0%")]
)
def test_a_share_that_falls_short_does_not_look_kept(fraction: float, said: str) -> None:
    assert format_attainment(fraction) == said


def test_dollars_are_said_to_be_all_replicas_for_the_whole_span() -> None:
    """Attack: `elastic: true` gave nothing back in the bill, and nothing said so."""
    described = fleet_choice(FLEET)
    fixed = penstock.simulate_fleet(described, rate=1.0, requests=60)
    elastic = replace(described, pools=tuple(replace(one, elastic=True) for one in described.pools))
    given = penstock.simulate_fleet(elastic, rate=1.0, requests=60)
    assert "The cost covers all replicas until the last token: penstock $" in drawn(fixed)
    assert "given back" not in drawn(fixed)
    assert "could be released, for at most this share of the time: h100" in drawn(given)
    (run,) = given.runs
    for one in run.outcome.pools:
        assert one.idle_fraction == pytest.approx(1 - one.busy_fraction)
    document = given.to_dict()
    told = document["policies"][0]["pools"]  # type: ignore[index]
    assert [row["idle_fraction"] for row in told] == [one.idle_fraction for one in run.outcome.pools]
    assert [row["elastic"] for row in document["pools"]] == [True, True]  # type: ignore[attr-defined]


def test_who_runs_and_who_waits_are_counted_alike() -> None:
    """Little's law holds of what the document says: requests in batches and queues are arrivals times seconds."""
    answer = penstock.simulate_fleet(FLEET, policy="round-robin", rate=12.0, requests=2_000)
    (run,) = answer.runs
    served = run.outcome.served
    assert served is not None
    told = answer.to_dict()["policies"][0]["pools"]  # type: ignore[index]
    there = sum(row["mean_in_batches"] + row["mean_waiting"] for row in told)
    overhead_s = sum(one.replica.request_s for one in answer.pools) / len(answer.pools)
    spent_s = float((served.e2e_s - overhead_s).sum())
    assert there == pytest.approx(spent_s / run.outcome.makespan_s, rel=0.05)
    assert told[0]["mean_batch"] > told[0]["mean_in_batches"] * 0.99


def test_an_impossible_factor_or_interval_is_refused() -> None:
    """Attack: steps of no length were accepted, and reports without an interval divided by zero."""
    with pytest.raises(UsageError, match="write a factor above 0"):
        penstock.simulate_fleet(FLEET, events=["slow h100/0 x0 at 1s"], requests=10)
    with pytest.raises(UsageError, match="write an interval above 0"):
        penstock.simulate_fleet(FLEET, reports="0ms", requests=10)
    with pytest.raises(UsageError, match="write `at 60s for 30s`"):
        Fault(kind="dies", replica=0, at_s=-1.0)
    with pytest.raises(UsageError, match="write 0ms"):
        RouterVisibility(report_delay_s=float("inf"))


def test_a_trace_has_its_own_lengths_and_columns_are_a_traces() -> None:
    trace = Path(__file__).resolve().parents[2] / "data" / "nobody-reads-it.csv"
    with pytest.raises(UsageError, match="a trace has its own lengths"):
        penstock.simulate_fleet(FLEET, trace=trace, input_tokens=100)
    with pytest.raises(UsageError, match="--columns needs a trace"):
        penstock.simulate_fleet(FLEET, columns="arrival=ts")
