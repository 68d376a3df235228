"""The first screen does not call another confidence free because the compared fleets cost the same."""

from dataclasses import replace

from penstock.planning.uncertainty.confidence_levels import ConfidenceLevel
from penstock.report.plan.confidence_sentences import compare_level


def test_a_smaller_confidence_that_saves_nothing_here_is_not_called_the_same_cost() -> None:
    planned = ConfidenceLevel(confidence=0.8, usd=100.0, nodes=2.0, planned=True)
    told = {at: compare_level(replace(planned, confidence=at, planned=False), planned, "node") for at in (0.5, 0.9)}
    assert told == {0.5: "50% may cost less with a fleet that was not compared", 0.9: "90% costs the same"}
    cheaper = replace(planned, confidence=0.5, usd=40.0, planned=False, instead=("mi325x",))
    assert compare_level(cheaper, planned, "node") == "50% saves at least $60 (mi325x)"
