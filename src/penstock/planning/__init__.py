"""Chooses the fleet to buy: reads a plan, finds feasible deployments, and finds, bills and tests the cheapest fleet."""
