"""Penstock maps every LLM-inference workload to the right silicon, AMD or NVIDIA."""

__version__ = "0.1.0"
