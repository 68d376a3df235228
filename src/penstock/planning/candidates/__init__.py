"""Finds the deployments that could run each workload, and the capacity of one replica."""
