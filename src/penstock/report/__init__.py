"""Renders results as terminal tables, charts and JSON. Nothing here computes a result."""
