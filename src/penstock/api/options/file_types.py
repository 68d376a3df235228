"""Defines types of arguments that are a file or a loaded object.

These types need numpy, so they are in a separate module.
"""

from os import PathLike
from typing import TypeAlias

from penstock.fleet.pools import Fleet
from penstock.workload import Trace

AskedFleet: TypeAlias = str | PathLike[str] | Fleet
"""A fleet file, or a loaded fleet."""
AskedTrace: TypeAlias = str | PathLike[str] | Trace
"""A trace file, or a loaded trace."""
