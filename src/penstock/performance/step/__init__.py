"""Computes the work of an engine step at the roofline, and coefficients that give its time."""
