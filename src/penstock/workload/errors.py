"""What can be wrong with a trace and is not a bug?"""

from penstock.errors import PenstockError


class TraceError(PenstockError):
    """A trace cannot be read, or nothing in it can be used."""
