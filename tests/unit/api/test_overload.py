"""The fleet file says what may be done with the requests of a route in overload, and the simulator does it."""

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

import penstock
from penstock.api.arguments.fleet_argument import fleet_choice
from penstock.errors import UsageError
from penstock.fleet.fleet_file import read_fleet, write_fleet
from penstock.routing.baselines.all_policies import policy_of
from penstock.simulation.run import simulate
from penstock.simulation.run_options import Options, Routing
from penstock.workload import Overload, Slo, SloClass
from simulated import conversation_lengths, pool

FLEET = Path(__file__).resolve().parents[3] / "examples" / "fleets" / "chat-h100-mi300x.yaml"


@pytest.mark.parametrize("overload", ["serve", "refuse", "hold"])
def test_a_fleet_file_keeps_what_may_be_done_in_overload(overload: Overload) -> None:
    fleet = fleet_choice(FLEET)
    stated = replace(fleet, routes=tuple(replace(route, overload=overload) for route in fleet.routes))
    text = write_fleet(stated)
    assert ("overload:" in text) == (overload != "serve")
    assert read_fleet(text, "fleet.yaml") == stated


def test_another_word_is_refused_with_the_words_that_are_known() -> None:
    text = FLEET.read_text(encoding="utf-8").replace("- workload: chat\n", "- workload: chat\n  overload: drop\n")
    with pytest.raises(UsageError, match=r"serve.*refuse.*hold"):
        read_fleet(text, "fleet.yaml")


def test_each_route_is_treated_as_it_says() -> None:
    """Two routes with one SLO are two classes if only one of them may be refused."""
    fleet = fleet_choice(FLEET)
    chat = replace(fleet.routes[0], peak_requests_per_s=300.0)
    batch = replace(chat, workload="batch", input_tokens=1_500, overload="refuse")
    answer = penstock.simulate_fleet(replace(fleet, routes=(chat, batch)), requests=3_000, policy="penstock,llm-d")
    ours, peer = (run.outcome for run in answer.runs)
    assert [(item.name, item.refused > 0) for item in ours.classes] == [("chat", False), ("batch", True)]
    assert peer.refused == 0
    assert answer.rows()[0]["held"] == 0
    drawn = Console(file=StringIO(), width=200)
    drawn.print(answer.render(200))
    assert "because of overload where the fleet file allows it" in drawn.file.getvalue()  # type: ignore[attr-defined]


def test_lengths_that_are_typed_follow_the_routes_that_agree() -> None:
    fleet = fleet_choice(FLEET)
    held = replace(fleet, routes=(replace(fleet.routes[0], overload="hold"),))
    (run,) = penstock.simulate_fleet(held, rate=400, requests=3_000, input_tokens=2_000, output_tokens=200).runs
    assert run.outcome.held > 0 < run.outcome.refused


@pytest.mark.parametrize("share", [0.8, 1.3])
def test_beyond_capacity_no_peer_keeps_more(share: float) -> None:
    """The short version of `make overload`: one pool of four, and its capacity of about 60 requests/s."""
    sent = conversation_lengths(2_500, 60.0 * share)
    kept: dict[str, int] = {}
    for overload in ("serve", "refuse", "hold"):
        promised = SloClass(name="all", share_fraction=1.0, slo=Slo(ttft_s=1.0, tpot_s=0.05), overload=overload)
        outcome = simulate([pool(replicas=4)], [sent], classes=[promised], options=Options(routing=Routing()))
        kept[overload] = outcome.classes[0].met
    for name in ("round-robin", "least-request", "llm-d", "dynamo"):
        routing = Routing(pick=policy_of(name).pick)
        peer = simulate([pool(replicas=4)], [sent], classes=[promised], options=Options(routing=routing))
        assert min(kept.values()) >= peer.classes[0].met - 0.01 * 2_500, name
