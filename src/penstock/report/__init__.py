"""Renders results as terminal tables, charts and JSON. The package computes no results."""
