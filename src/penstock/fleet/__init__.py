"""What runs where? A fleet as a value, and the file it is kept in: written by the planner, read by whoever runs it."""

from penstock.fleet.fleet import Fleet, NodeGroup, Pool, Role, Route
from penstock.fleet.fleet_yaml import read_fleet, write_fleet

__all__ = ["Fleet", "NodeGroup", "Pool", "Role", "Route", "read_fleet", "write_fleet"]
