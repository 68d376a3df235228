"""Does this server compute what another one computes? Compares log-probabilities of two endpoints."""
