"""Types of arguments that may be a file or the loaded object. They load numpy, so they have their own module."""

from os import PathLike
from typing import TypeAlias

from penstock.fleet.pools import Fleet
from penstock.workload import Trace

AskedFleet: TypeAlias = str | PathLike[str] | Fleet
"""A fleet file, or a loaded fleet."""
AskedTrace: TypeAlias = str | PathLike[str] | Trace
"""A trace file, or a loaded trace."""
