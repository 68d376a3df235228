"""Checks the FP8 weights of a checkpoint: dialects, scales and visible defects."""
