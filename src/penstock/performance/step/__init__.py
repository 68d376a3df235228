"""Computes the work of an engine step at the roofline, and coefficients from which the time of a step is computed."""
