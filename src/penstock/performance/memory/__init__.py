"""Computes whether a deployment fits in device memory: weights, reserves and the space left for the KV cache."""
