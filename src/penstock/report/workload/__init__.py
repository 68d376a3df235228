"""Renders a workload."""
