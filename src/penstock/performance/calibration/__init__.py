"""Fits slowdowns to measured rows, and computes the errors of predictions for held-out rows."""
