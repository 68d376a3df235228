"""Fits slowdowns to measured rows and computes their held-out errors."""
