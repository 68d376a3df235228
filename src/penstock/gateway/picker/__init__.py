"""Chooses endpoints for a request: one decision and the state it is made from."""
