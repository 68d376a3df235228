"""Draws synthetic requests: arrivals, lengths, shared prompts and turns of a conversation."""
