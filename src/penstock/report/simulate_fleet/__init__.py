"""Renders a comparison of routing policies on a fleet."""
