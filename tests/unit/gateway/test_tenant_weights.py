"""Tenants are weighted by tokens served; anonymous requests are one tenant."""

import pytest

from penstock.gateway.picker.tenant_weights import TenantWeights


def test_anonymous_requests_share_one_share() -> None:
    """As tokens without the tenant's claim: nine in ten requests are theirs, of one of two tenants."""
    tenants = TenantWeights()
    for turn in range(100):
        bucket, _ = tenants.weigh("" if turn % 10 else "search", float(turn) / 100)
        tenants.count(bucket, 100, 50, float(turn) / 100)
    assert tenants.weigh("search", 1.0)[1] == 1.0
    assert tenants.weigh("", 1.0)[1] == pytest.approx(0.5 / 0.9, rel=0.01)


def test_anonymous_requests_alone_keep_their_weight() -> None:
    tenants = TenantWeights()
    for turn in range(100):
        bucket, weight = tenants.weigh("", float(turn))
        assert (bucket, weight) == (0, 1.0)
        tenants.count(bucket, 100, 50, float(turn))


def test_a_tenant_beyond_its_share_weighs_less_in_proportion() -> None:
    tenants = TenantWeights()
    tenants.count(1, 3000, 0, 0.0)
    tenants.count(2, 1000, 0, 0.0)
    # An equal share of 4,000 is 2,000: the first tenant got 3,000.
    assert tenants.weight(1, 0.0) == pytest.approx(2000 / 3000)
    assert tenants.weight(2, 0.0) == 1.0


def test_a_single_tenant_and_an_unknown_one_keep_their_weight() -> None:
    tenants = TenantWeights()
    assert tenants.weight(7, 0.0) == 1.0
    tenants.count(7, 10, 1000, 0.0)
    assert tenants.weight(7, 0.0) == 1.0


def test_output_tokens_count_twice_and_halve_every_minute() -> None:
    tenants = TenantWeights()
    tenants.count(1, 0, 1000, 0.0)
    tenants.count(2, 1000, 0, 60.0)
    assert tenants.weight(1, 60.0) == tenants.weight(2, 60.0) == pytest.approx(1.0)


def test_a_tenant_without_requests_for_long_has_no_share() -> None:
    tenants = TenantWeights()
    tenants.count(1, 1000, 0, 0.0)
    tenants.count(2, 1000, 0, 3600.0)
    assert tenants.weight(2, 3600.0) == 1.0
