"""Computes whether a deployment fits in device memory, from weights, reserves and the space left for the KV cache."""
