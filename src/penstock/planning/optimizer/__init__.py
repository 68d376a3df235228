"""Finds the cheapest fleet by integer programming, and computes its bill."""
