"""Renders a simulation."""
