"""Simulates how a fleet behaves under load: discrete events, continuous batching, and a skip over equal steps."""
