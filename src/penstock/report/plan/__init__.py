"""Renders a plan."""
