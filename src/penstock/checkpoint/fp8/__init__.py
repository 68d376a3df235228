"""Checks FP8 bytes: dialects, scales and visible defects."""
