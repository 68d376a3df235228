"""Renders an audit in the terminal, as an HTML page and as JSON."""
