"""What runs where? A deployment and its engine as values; fleets of them in `pools`, and their file in `file`."""

from penstock.fleet.deployment import Deployment, Parallelism
from penstock.fleet.engines import Engine, engine_defaults
from penstock.fleet.release import Release

__all__ = ["Deployment", "Engine", "Parallelism", "Release", "engine_defaults"]
