"""Which endpoint should serve a request? `harm.pick` decides, for the simulator and the gateway alike."""
