"""What a plan says before its uncertainty is known, and the commands it names at its end."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.planning.plan_result import Answer
from penstock.report.drawing.html_template import code_marked
from penstock.report.plan.confidence_sentences import share_enough
from penstock.report.plan.first_answer import first_answer_text
from penstock.report.plan.next_steps import next_steps
from penstock.report.plan.plan_amounts import range_text, usd
from small_plans import TWO_PARTS, solved

if TYPE_CHECKING:
    from penstock.planning.uncertainty.quantify_uncertainty import FirstAnswer


def test_the_first_answer_has_fleet_cost_and_confidence_of_the_final_one() -> None:
    first: list[FirstAnswer] = []
    answer = solved(TWO_PARTS, found=first.append).answer
    assert isinstance(answer, Answer)
    fleet, cost = answer.winner.mix.nodes_of("h200_sxm", 0), usd(answer.winner.cost.total_usd)
    assert first[-1].confidence.fleet_usd == answer.confidence.fleet_usd
    assert first[-1].confidence.enough_fraction == answer.confidence.enough_fraction
    text = first_answer_text(first[-1])
    span = range_text(answer.verdict.cost_usd)
    assert text.startswith(f"Cheapest so far: NVIDIA at {cost} all in{span}: {fleet:.0f} x h200_sxm bought; enough in ")
    assert f"{share_enough(answer.winner.mix, answer.confidence)} of cases (planned for 80%); AMD $" in text
    assert text.endswith("Still computing: what would change this.")
    missed = first_answer_text(replace(first[-1], keeps_slo=False))
    assert "but it misses its SLO in simulation" in missed
    assert "enough in" not in missed


def test_a_plan_without_files_names_the_command_that_writes_them() -> None:
    commands = next_steps(Path("my plan.yaml"), fleet=None, rfp=None, vendors=["amd"]).values()
    assert list(commands) == [
        "penstock plan 'my plan.yaml' --fleet fleet.yaml --rfp request",
        "penstock plan 'my plan.yaml' --html report.html",  # apart: it needs an extra
    ]


def test_a_written_fleet_is_checked_replayed_routed_exported_and_measured() -> None:
    commands = next_steps(Path("p.yaml"), fleet=Path("f.yaml"), rfp=Path("rfp"), vendors=["amd", "nvidia"]).values()
    assert list(commands) == [
        "penstock preflight --fleet f.yaml",
        "penstock simulate --fleet f.yaml",
        "penstock route f.yaml",
        "penstock export f.yaml --to litellm",
        "penstock bench rfp/acceptance-amd.yaml --target amd=http://HOST:8000",
        "penstock bench rfp/acceptance-nvidia.yaml --target nvidia=http://HOST:8000",
    ]


def test_pages_write_commands_as_code_and_escape_the_rest() -> None:
    assert code_marked("<b> `penstock route` & more") == "&lt;b&gt; <code>penstock route</code> &amp; more"
