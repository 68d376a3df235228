"""Chooses the endpoint for a request. `harm.pick` decides, for the simulator and the gateway alike."""
