"""Decides how many replicas of each pool should be up: the cheapest set that sustains the expected load."""
