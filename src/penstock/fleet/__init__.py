"""Deployments and engines as values. `pools` defines fleets, and `fleet_file` reads and writes them."""

from penstock.fleet.deployment import Deployment, Parallelism
from penstock.fleet.engines import Engine, engine_defaults
from penstock.fleet.release import Release

__all__ = ["Deployment", "Engine", "Parallelism", "Release", "engine_defaults"]
