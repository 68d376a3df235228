"""Finds the deployments that could run each workload, and the capacity of a replica of each."""
