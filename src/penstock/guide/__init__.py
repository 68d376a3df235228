"""Finds the cheapest fleet for each workload of a grid, and the lines where the answer turns.

The guide uses the parts of `planning`: candidates, capacities, prices, headroom and draws. For one workload, a fleet of
one accelerator is a number of equal units, so the cheapest is enumerated instead of solved for.
"""
