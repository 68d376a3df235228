"""Chooses the fleet to buy: the plan file, feasible deployments, the cheapest mix, its cost and its sensitivity."""
