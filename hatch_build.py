"""Builds a wheel with the compiled libraries of one platform, or without any for every platform."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import platform_tags

ASKED: Final = "PENSTOCK_WHEEL"
"""The environment variable that names the platform of a wheel, as in `linux-aarch64`, or `any` for none."""
SHIPPED: Final = Path("src/penstock/compiled/shipped")
_GLIBC: Final = re.compile(rb"GLIBC_2\.(\d+)")


class CompiledLibrary(BuildHookInterface):
    """Runs tools/build_machine_code.py before a wheel is packed, and packs the libraries of one platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the libraries, unless the install is editable: a checkout builds its own at the first simulation."""
        asked = os.environ.get(ASKED)
        if version == "editable" or asked == "any":
            return
        root = Path(self.root)
        command = [sys.executable, str(root / "tools/build_machine_code.py"), "--portable"]
        done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - our own tool
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            self.app.display_warning(f"The wheel carries no compiled library: {last}")
            return
        libraries = libraries_of(root / SHIPPED, asked or this_platform(root))
        packed = [*libraries, root / SHIPPED / "stamp.json"]
        build_data["artifacts"] += [path.relative_to(root).as_posix() for path in packed]
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag(libraries)}"


def libraries_of(folder: Path, platform: str) -> list[Path]:
    """Return the files of a platform, of which there is at least one."""
    found = sorted(path for path in folder.iterdir() if path.stem.endswith(f"-{platform}"))
    if not found:
        raise ValueError(f"{ASKED}={platform}: there is no library for it; try linux-x86_64, linux-aarch64 or any")
    return found


def this_platform(root: Path) -> str:
    """Return the name that the package gives to this platform."""
    sys.path.insert(0, str(root / "src"))
    from penstock.compiled.library import platform_name  # noqa: PLC0415 - the package is not installed during a build

    return platform_name()


def platform_tag(libraries: list[Path]) -> str:
    """Return the tag of the oldest system that can load all libraries: on Linux the newest glibc that one names."""
    needed = [int(minor) for path in libraries for minor in _GLIBC.findall(path.read_bytes())]
    _, system, machine = libraries[0].stem.rsplit("-", 2)
    if system != "linux":
        return next(platform_tags())
    return f"manylinux_2_{max(17, *needed)}_{machine}" if needed else f"linux_{machine}"
