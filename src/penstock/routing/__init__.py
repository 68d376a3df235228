"""Chooses the endpoint for a request. The simulator and the gateway both choose with `harm.pick`."""
