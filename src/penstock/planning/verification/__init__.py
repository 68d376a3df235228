"""Simulates fleets at their peak load, and sizes them so that they just meet their SLO."""
