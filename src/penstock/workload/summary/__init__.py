"""Summarises a workload: rates, lengths and sharing."""
