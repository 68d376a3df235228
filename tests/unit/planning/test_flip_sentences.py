"""A flip names the side on which the winner is cheapest again."""

from typing import Literal

import pytest

from penstock.planning.uncertainty.sensitivity import Flip
from penstock.report.plan.flips import flip_sentence, plain_flip


def flip(at: float, side: Literal["above", "below"], *, returns: bool) -> Flip:
    return Flip(
        kind="throughput",
        id="accelerators/h100_sxm/throughput",
        subject="h100_sxm",
        name="h100_sxm throughput",
        unit="x estimate",
        current=1.0,
        at=at,
        side=side,
        winner="nvidia",
        instead="amd",
        instead_named=("amd",),
        within_range=False,
        uncertainty_fraction=0.2,
        solved=True,
        returns=returns,
    )


@pytest.mark.parametrize(
    ("below", "above", "said"),
    [
        (False, True, "; far above that, "),
        (True, False, "; far below that, "),
        (True, True, "; farther away "),
    ],
)
def test_only_the_side_on_which_the_winner_returns_is_named(*, below: bool, above: bool, said: str) -> None:
    """Attack: only the upper side returned, and "farther away" was said of both."""
    ends = flip(0.9, "below", returns=below), flip(1.5, "above", returns=above)
    assert flip_sentence(*ends).endswith(f"otherwise AMD is cheaper{said}NVIDIA is cheapest again")
    assert plain_flip(ends, {}).endswith(f"{said}the planned fleet is cheapest again.")


def test_one_flip_has_one_side() -> None:
    assert flip_sentence(flip(1.5, "above", returns=True)).endswith("; farther away NVIDIA is cheapest again")
    assert "again" not in flip_sentence(flip(0.9, "below", returns=False), flip(1.5, "above", returns=False))
