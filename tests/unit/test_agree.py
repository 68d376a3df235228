"""The bench of disagreements counts what is over the limit, and fails when a kind grows."""

import pytest

from agree import bench
from agree.comparison import Comparison, apart
from agree.situations import drawn
from agree.speeds import compare_speeds

KIND = "tokens/s: predict / simulate"
LIMIT = 0.02
BEFORE = {KIND: {"asked": 3, "disagreements": 1}}


def counted(*gaps: float) -> list[bench.Kind]:
    return bench.kinds_of([Comparison(KIND, gap, f"{gap}", ()) for gap in gaps])


def test_gap_over_the_limit_disagrees() -> None:
    (kind,) = counted(0.0, LIMIT, 2 * LIMIT)
    assert (kind.asked, kind.disagreements) == (3, 1)
    assert kind.worst is not None
    assert kind.worst.gap == 2 * LIMIT


@pytest.mark.parametrize(
    ("gaps", "fails"), [((0.0, 1.0, 2.0), True), ((0.0, 0.0, 1.0), False), ((0.0, 0.0, 0.0), False)]
)
def test_only_a_grown_kind_fails(gaps: tuple[float, ...], *, fails: bool) -> None:
    assert bool(bench.grown(counted(*gaps), BEFORE)) == fails


def test_kind_that_is_no_longer_asked_fails() -> None:
    assert bench.grown([], BEFORE)


def test_kind_without_a_limit_is_refused() -> None:
    with pytest.raises(KeyError):
        bench.kinds_of([Comparison("unheard of", 0.0, "", ())])


def test_broken_door_is_a_disagreement() -> None:
    def breaks() -> list[Comparison]:
        raise ZeroDivisionError

    (kind,) = bench.kinds_of(bench.Job("broken", breaks, ()).run())
    assert (kind.name, kind.disagreements) == ("a door breaks", 1)


def test_figures_are_apart_symmetrically() -> None:
    assert apart(2.0, 3.0) == apart(3.0, 2.0) == 0.5
    assert apart(0.0, 0.0) == 0.0 < apart(0.0, 1.0)


def test_situations_depend_on_their_number_alone() -> None:
    assert drawn("speeds", 7) == drawn("speeds", 7) != drawn("speeds", 8)


def test_every_compared_kind_has_a_limit() -> None:
    assert bench.kinds_of(list(compare_speeds(drawn("speeds", 4))))
