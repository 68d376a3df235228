"""Builds the compiled library into the wheel. Without a compiler the wheel carries none, and says so."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledLibrary(BuildHookInterface):
    """Runs tools/build_machine_code.py before a wheel is packed."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatch's signature
        """Build the libraries, unless the install is editable: a checkout builds its own at the first simulation."""
        if version == "editable":
            return
        command = [sys.executable, str(Path(self.root) / "tools/build_machine_code.py"), "--portable"]
        done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - our own tool
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            self.app.display_warning(f"The wheel carries no compiled library: {last}")
