"""A fleet planned for a confidence is enough in that share of independent worlds.

`make confidence` simulates 150 worlds of each of eight plans.
"""

from math import sqrt

import pytest
from check_confidence import check_plan

WORLDS = 60


@pytest.mark.parametrize("confidence", [0.5, 0.8])
def test_a_fleet_is_enough_as_often_as_planned(confidence: float) -> None:
    share, _ = check_plan("70B on H200", confidence, WORLDS)
    # Whole nodes round a fleet up, so it may be enough more often by a few points.
    chance = 3 * sqrt(confidence * (1 - confidence) / WORLDS)
    assert confidence - chance <= share <= confidence + chance + 0.05
