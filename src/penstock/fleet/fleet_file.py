"""Writes and strictly reads fleet files in YAML.

An error message is one line, with the line number in the file and the correction.
"""

from typing import Final

import yaml

from penstock.fleet.pools import VERSION, Fleet, example_endpoints
from penstock.reading.file_shape import FileShape
from penstock.units import count_text

_HEAD: Final = (
    "# Pools are identical replicas; a route sends requests of about these lengths to pools by weight.\n"
    "# Once the replicas run, replace `endpoints: []` of every pool; `penstock route` and `penstock export` need it.\n"
)
_OPTIONAL: Final = ("image", "launch", "adapters", "drafted_tokens", "feeds", "kv_gbps", "elastic", "node_devices")
"""Keys of a pool, its engine or of nodes that are left out of the file if they have no value."""
_NO_ENDPOINTS: Final = "  endpoints: []\n"
FLEET_FILE: Final = FileShape(
    of=Fleet,
    kind="fleet",
    written_by="penstock plan plan.yaml --fleet fleet.yaml",
    title="A fleet, as `penstock plan --fleet` writes it and `simulate --fleet` reads it",
    version=VERSION,
)


def write_fleet(fleet: Fleet) -> str:
    """Return a fleet as YAML, which `read_fleet` parses."""
    document = FLEET_FILE.document(fleet)
    for entries in ("nodes", "pools"):
        document[entries] = [_stated_fields(entry) for entry in document[entries]]
    for pool in document["pools"]:
        pool["engine"] = _stated_fields(pool["engine"])
    if not fleet.shared_devices:
        del document["shared_devices"]
    for route in document["routes"]:
        if route["overload"] == "serve":
            del route["overload"]
    body: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    return _HEAD + _with_places_to_fill(body, fleet)


def _with_places_to_fill(body: str, fleet: Fleet) -> str:
    """Add a comment to the empty endpoints of each pool, which says how many addresses are missing."""
    first, *rest = body.split(_NO_ENDPOINTS)
    pools = [pool for pool in fleet.pools if not pool.endpoints]
    comments = [f"  # {count_text(pool.replicas, 'replica')}: {example_endpoints(pool)}" for pool in pools]
    pieces = (f"{_NO_ENDPOINTS.rstrip()}{comment}\n{text}" for comment, text in zip(comments, rest, strict=True))
    return first + "".join(pieces)


def _stated_fields(entry: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in entry.items() if value or key not in _OPTIONAL}


class _Dumper(yaml.SafeDumper):  # type: ignore[misc] # PyYAML ships no types
    """Writes texts of several lines, such as a launch command, line by line."""


def _write_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _write_text)


def read_fleet(text: str, name: str) -> Fleet:
    """Read a fleet file. `name` is the file name for error messages."""
    return FLEET_FILE.read(text, name)
