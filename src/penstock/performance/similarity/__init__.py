"""Predicts unmeasured runs from measured runs, weighted by similarity."""
