"""Simulates fleets at peak load, and sizes each fleet so that it just meets its SLO."""
