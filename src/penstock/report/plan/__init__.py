"""Renders a plan for the terminal, as an HTML report, as JSON and as a request for proposals."""
