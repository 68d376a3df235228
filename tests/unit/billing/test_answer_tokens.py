"""Estimated tokens are scaled to what the engines counted."""

import numpy as np
import pytest

from penstock.billing.answer_tokens import MeteredTokens, TokenScale, token_scale


def intervals(streamed: float, whole: float, mixes: list[float], noise: float = 0.0) -> list[MeteredTokens]:
    rng = np.random.default_rng(1)
    return [
        MeteredTokens(
            streamed=10_000 * mix,
            whole=10_000 * (1 - mix),
            counted=10_000 * (mix * streamed + (1 - mix) * whole) * (1 + noise * float(rng.standard_normal())),
        )
        for mix in mixes
    ]


def test_the_sum_is_the_engines_count() -> None:
    given = intervals(1.2, 0.7, [0.2, 0.9, 0.5], noise=0.05)
    found = token_scale(given)
    scaled = sum(one.streamed * found.streamed + one.whole * found.whole for one in given)
    assert scaled == pytest.approx(sum(one.counted for one in given), rel=1e-12)
    assert found.metered


def test_two_kinds_are_told_apart_if_their_shares_change() -> None:
    found = token_scale(intervals(1.2, 0.7, [0.1, 0.9] * 20, noise=0.02))
    assert found.streamed == pytest.approx(1.2, rel=0.03)
    assert found.whole == pytest.approx(0.7, rel=0.03)


def test_one_kind_has_the_ratio_of_the_sums() -> None:
    assert token_scale(intervals(1.1, 3.0, [1.0] * 5)).streamed == pytest.approx(1.1)


def test_equal_shares_all_the_time_give_equal_factors() -> None:
    found = token_scale(intervals(1.5, 0.5, [0.5] * 10))
    assert found.streamed == pytest.approx(found.whole) == pytest.approx(1.0)


@pytest.mark.parametrize(
    "given",
    [
        [],
        [MeteredTokens(streamed=5.0, whole=0.0, counted=6.0)],
        [MeteredTokens(streamed=10_000.0, whole=0.0, counted=90_000.0)],  # most of it came past the gateway
        [MeteredTokens(streamed=0.0, whole=0.0, counted=90_000.0)],
    ],
)
def test_without_a_plausible_count_estimates_stay(given: list[MeteredTokens]) -> None:
    assert token_scale(given) == TokenScale()
