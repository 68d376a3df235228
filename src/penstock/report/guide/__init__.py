"""Renders the answer of `guide`: a map of workloads, for the terminal, as JSON and as a page."""
