"""Finds the shared library in the package or in the user's cache, or else builds the library.

A library is used only if its stamp equals the stamp of the sources. If no library can be built, compiled functions run
as Python.
"""

import json
import logging
import os
import platform
import subprocess
import sys
import tempfile
import warnings
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Final

from penstock.compiled.opened import Opened, open_library
from penstock.compiled.source_stamp import raw_digest, stamp
from penstock.errors import DeploymentError

BUILD_COST: Final = "about 30 seconds of processor time"
SHIPPED: Final = Path(__file__).parent / "shipped"
STAMP_FILE: Final = "stamp.json"
log = logging.getLogger("penstock")


def platform_name() -> str:
    """Return the name of this platform, as in `linux-x86_64`."""
    system = {"darwin": "macos"}.get(sys.platform, sys.platform)
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
    return f"{system}-{machine}"


def file_name(of_platform: str | None = None) -> str:
    """Return the name of a platform's library."""
    name = of_platform or platform_name()
    return f"libpenstock-{name}{'.dylib' if name.startswith('macos') else '.so'}"


def _shipped_library() -> Path | None:
    """Return the library shipped with the package, if it was built from these sources."""
    try:
        built_from = json.loads((SHIPPED / STAMP_FILE).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    path = _library_or_object(SHIPPED / file_name())
    if path is None or not isinstance(built_from, dict):
        return None
    same = built_from.get("sources") == raw_digest() or built_from.get("stamp") == _noted_stamp()
    return path if same else None


def _library_or_object(path: Path) -> Path | None:
    """Return a library, or the object file that a build leaves if no linker was found."""
    return next((item for item in (path, path.with_suffix(".o")) if item.is_file()), None)


def cache_folder() -> Path:
    """Return the folder in which built libraries are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(base) / "penstock" / "compiled"


def _noted_stamp() -> str:
    """Return the stamp of the sources.

    To parse the sources takes a quarter of a second, so the stamp is kept in a file.
    """
    note = cache_folder() / f"{raw_digest()}.stamp"
    try:
        return note.read_text(encoding="ascii")
    except OSError:
        found = stamp()
    with suppress(OSError):
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(found, encoding="ascii")
    return found


def _cached_library() -> Path | None:
    """Return the library, or the object file, that an earlier run built from these sources."""
    return _library_or_object(cache_folder() / f"{_noted_stamp()}-{file_name()}")


@cache
def _ready() -> Path | None:
    return _shipped_library() or _cached_library()


def library_path() -> Path | None:
    """Return the path of the library, which is built first if there is none. None if it cannot be built."""
    return _ready() if load() is not None else None


def is_ready() -> bool:
    """Return whether there is nothing to build: a library for these sources exists, or none can be built."""
    return _ready() is not None or not can_build()


def can_build() -> bool:
    """Return whether the compiler is installed."""
    return find_spec("numba") is not None


def is_kept() -> bool:
    """Return whether a built library is kept after this process ends."""
    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(cache_folder(), os.W_OK)


def build() -> Path:
    """Build the library in another process, because the build changes numba.

    The library is kept if the cache is writable.
    """
    folder = cache_folder() if is_kept() else Path(tempfile.mkdtemp(prefix="penstock-"))
    made = Path(tempfile.mkdtemp(dir=folder)) / file_name()
    command = [sys.executable, "-m", "penstock.compiled.builder.build_library", str(made)]
    search = os.pathsep.join(item for item in sys.path if item)
    environment = {**os.environ, "PYTHONPATH": search}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603 - our own
    built = _library_or_object(made)
    if done.returncode or built is None:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise DeploymentError(f"the compiled code cannot be built: {last}")
    kept = folder / f"{stamp()}-{built.name}"
    built.replace(kept)
    made.parent.rmdir()
    _ready.cache_clear()
    return kept


@cache
def load() -> Opened | None:
    """Open the library, and build it first if there is none. If the build fails, warn and return None."""
    path = _ready()
    if path is None and can_build():
        start_s = perf_counter()
        log.info("Compiling, once per machine and version: %s.", BUILD_COST)
        try:
            path = build()
        except DeploymentError as error:
            warnings.warn(f"{error}; the simulator runs as Python, a thousand times slower", stacklevel=2)
            return None
        log.info("Compiled in %.0f s.", perf_counter() - start_s)
    if path is None:
        warnings.warn(
            f"no compiled library for {platform_name()}: the simulator runs as Python, a thousand times slower; "
            "install penstock[compile] to build one",
            stacklevel=2,
        )
        return None
    return open_library(path)
