"""Tenants are counted for what they were served, and whoever has no name is one of them."""

import pytest

from penstock.gateway.picker.tenant_weights import TenantWeights


def test_all_that_have_no_name_share_one_share() -> None:
    """As tokens without the tenant's claim: nine in ten requests are theirs, of one of two tenants."""
    tenants = TenantWeights()
    for turn in range(100):
        bucket, _ = tenants.weigh("" if turn % 10 else "search", float(turn) / 100)
        tenants.count(bucket, 100, 50, float(turn) / 100)
    assert tenants.weigh("search", 1.0)[1] == 1.0
    assert tenants.weigh("", 1.0)[1] == pytest.approx(0.5 / 0.9, rel=0.01)


def test_where_nobody_has_a_name_nobody_weighs_less() -> None:
    tenants = TenantWeights()
    for turn in range(100):
        bucket, weight = tenants.weigh("", float(turn))
        assert (bucket, weight) == (0, 1.0)
        tenants.count(bucket, 100, 50, float(turn))
