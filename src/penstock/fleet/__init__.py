"""What runs where? Deployments, engines and fleets as values, and the file a fleet is kept in."""

from penstock.fleet.deployment import Deployment, Parallelism
from penstock.fleet.engine import Engine, engine_defaults
from penstock.fleet.pools import Fleet, NodeGroup, Pool, Role, Route
from penstock.fleet.release import Release

__all__ = [
    "Deployment",
    "Engine",
    "Fleet",
    "NodeGroup",
    "Parallelism",
    "Pool",
    "Release",
    "Role",
    "Route",
    "engine_defaults",
]
