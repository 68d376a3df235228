"""Renders a preflight."""
