"""Checks whether published claims are possible and consistent with their own inputs."""
