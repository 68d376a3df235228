"""Decides whether two servers compute the same model. It compares the log-probabilities that the servers return."""
