"""Tenants within their share keep their weight; one beyond it weighs less in proportion, and is forgiven."""

import pytest

from penstock.routing.fairness import TenantShares


def test_a_tenant_beyond_its_share_weighs_less_in_proportion() -> None:
    shares = TenantShares()
    shares.served(1, 3000, 0, 0.0)
    shares.served(2, 1000, 0, 0.0)
    # Half of 4,000 is 2,000: the first had 3,000.
    assert shares.weight(1, 0.0) == pytest.approx(2000 / 3000)
    assert shares.weight(2, 0.0) == 1.0


def test_who_is_entitled_to_more_may_have_more() -> None:
    shares = TenantShares(shares={1: 3.0, 2: 1.0})
    shares.served(1, 3000, 0, 0.0)
    shares.served(2, 1000, 0, 0.0)
    assert shares.weight(1, 0.0) == shares.weight(2, 0.0) == 1.0


def test_one_alone_and_one_unknown_weigh_what_they_weigh() -> None:
    shares = TenantShares()
    assert shares.weight(7, 0.0) == 1.0
    shares.served(7, 10, 1000, 0.0)
    assert shares.weight(7, 0.0) == 1.0


def test_answers_count_twice_and_old_work_fades_by_halves() -> None:
    shares = TenantShares(half_life_s=60.0)
    shares.served(1, 0, 1000, 0.0)
    shares.served(2, 1000, 0, 60.0)
    # 2,000 of a minute ago are 1,000 now.
    assert shares.weight(1, 60.0) == shares.weight(2, 60.0) == pytest.approx(1.0)
