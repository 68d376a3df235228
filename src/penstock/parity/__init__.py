"""Compares the log-probabilities of two servers to decide whether they compute the same model."""
