"""Computes the work of an engine step at the roofline, and the coefficients that give the time of the step."""
