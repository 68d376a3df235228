"""Decides whether two servers compute the same model, by comparing their log-probabilities."""
