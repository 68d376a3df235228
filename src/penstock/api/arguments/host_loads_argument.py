"""Parses loads that users measured on their host, such as `0.5GB=30s,16GB=75s`."""

import re
from typing import Final

from penstock.errors import UsageError
from penstock.performance.residency.host_loads import HostLoads, host_loads
from penstock.units import GB

_LOAD: Final = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*GB\s*=(.+)", re.IGNORECASE)


def host_loads_choice(flag: str, text: str | None) -> HostLoads | None:
    """Return the line through measured loads; None if none are stated."""
    if text is None:
        return None
    from penstock.workload.slo import parse_duration  # noqa: PLC0415 - loads numpy, which `fit` does without

    found = [_LOAD.fullmatch(entry.strip()) for entry in text.split(",")]
    measured = [(float(match[1]) * GB, parse_duration(match[2])) for match in found if match is not None]
    try:
        return host_loads(measured if len(measured) == len(found) else [])
    except ValueError:
        raise UsageError(f"--{flag} '{text}': write loads of at least two sizes: 0.5GB=30s,16GB=75s") from None
