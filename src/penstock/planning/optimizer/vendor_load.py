"""Computes how much of the load each vendor of a fleet carries."""

from typing import Final

from penstock.planning.optimizer.problem import Mix, Problem

_ROUNDING: Final = 1e-5


def vendor_shares(problem: Problem, mix: Mix) -> dict[tuple[str, int], float]:
    """Map each vendor and period to the vendor's share of the load, in tokens."""
    carried: dict[tuple[str, int], float] = {}
    whole = [0.0] * problem.periods
    demands = {demand.key: demand for demand in problem.demands}
    for pool in mix.pools:
        for (_, key), share in pool.load.items():
            tokens = share * demands[key].requests_per_s[pool.period] * demands[key].tokens
            whole[pool.period] += tokens
            at = (pool.offer.vendor, pool.period)
            carried[at] = carried.get(at, 0.0) + tokens
    return {(vendor, at): tokens / whole[at] for (vendor, at), tokens in carried.items() if whole[at]}


def vendors_above_minimum_share(problem: Problem, mix: Mix) -> frozenset[str]:
    """Return the vendors that carry at least the minimum share of the load in every period."""
    shares, least = vendor_shares(problem, mix), problem.min_vendor_share - _ROUNDING
    served = {at for _, at in shares}
    return frozenset(
        vendor
        for vendor in {vendor for vendor, _ in shares}
        if all(shares.get((vendor, at), 0.0) >= least for at in served)
    )
