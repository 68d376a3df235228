"""Shared prompt prefixes as a tree of segments."""
