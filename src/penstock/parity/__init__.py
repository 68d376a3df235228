"""Decides whether two servers compute the same model.

The decision compares the log-probabilities that the servers return.
"""
