"""Computes the work of one engine step at the roofline, and its time as coefficients."""
