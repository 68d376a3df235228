"""Finds the cheapest fleet: the problem, the integer program that solves it, and the bill."""
