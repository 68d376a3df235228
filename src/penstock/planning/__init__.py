"""Chooses the fleet to buy: reads a plan, finds feasible deployments and the cheapest fleet, and bills and tests it."""
