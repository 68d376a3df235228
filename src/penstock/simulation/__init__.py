"""Simulates a fleet under load by discrete events with continuous batching.

Runs of equal steps are computed at once.
"""
