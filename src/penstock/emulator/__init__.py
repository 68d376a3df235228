"""Serves mock OpenAI endpoints whose latencies come from the performance model."""
