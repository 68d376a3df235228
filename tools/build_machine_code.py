"""Builds the compiled library of the package, unless the one that is there has the stamp of the sources.

python tools/build_machine_code.py             # for this platform
python tools/build_machine_code.py --portable  # also for Linux x86-64 and aarch64 with an old glibc, as wheels carry it
"""

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from penstock.compiled.c_header import c_header
from penstock.compiled.library import SHIPPED, STAMP_FILE, file_name, platform_name
from penstock.compiled.source_stamp import raw_digest, stamp
from penstock.gateway.inside_envoy.module_library import compile_module, module_name, source_digest
from penstock.gateway.inside_envoy.module_table import module_header

HEADER = SHIPPED.parent / "penstock.h"
MODULE_HEADER = SHIPPED.parents[1] / "gateway/inside_envoy/module_table.h"
PORTABLE = ("linux-x86_64", "linux-aarch64")


def build(platforms: tuple[str, ...], *, portable: bool) -> None:
    """Build the libraries of platforms into the package, and write the stamp of their sources beside them."""
    built_from: dict[str, str | bool] = {"stamp": stamp(), "sources": raw_digest(), "portable": portable}
    stamp_file = SHIPPED / STAMP_FILE
    before = json.loads(stamp_file.read_text(encoding="ascii")) if stamp_file.is_file() else {}
    current = before.get("stamp") == built_from["stamp"] and before.get("portable", False) >= portable
    missing = [name for name in platforms if not (current and _is_built(SHIPPED / file_name(name)))]
    SHIPPED.mkdir(exist_ok=True)
    if not current:
        for old in SHIPPED.iterdir():
            old.unlink()
    built_from["portable"] = portable or (current and before.get("portable", False))
    if missing:
        wanted = [f"{name if portable else ''}={SHIPPED / file_name(name)}".removeprefix("=") for name in missing]
        command = [sys.executable, "-m", "penstock.compiled.builder.build_library", *wanted]
        # An isolated build of pip finds its packages by PYTHONPATH.
        search = os.pathsep.join(filter(None, (sys.path[0], os.environ.get("PYTHONPATH"))))
        subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": search})  # noqa: S603 - our own builder
    else:
        print("the compiled library is up to date")
    MODULE_HEADER.write_text(module_header(), encoding="ascii")
    HEADER.write_text(c_header(), encoding="ascii")
    if _build_modules(platforms, portable=bool(built_from["portable"])):
        built_from["module"] = source_digest()
    stamp_file.write_text(json.dumps(built_from), encoding="ascii")


def _build_modules(platforms: tuple[str, ...], *, portable: bool) -> bool:
    """Compile the Envoy module of each Linux platform for which there is a C compiler. Return whether there was any."""
    zig = [sys.executable, "-m", "ziglang", "cc", "-target"] if portable and find_spec("ziglang") else None
    made = False
    for name in platforms:
        own = [compiler] if name == platform_name() and (compiler := shutil.which("cc")) else None
        command = [*zig, f"{name.removeprefix('linux-')}-linux-gnu.2.17"] if zig else own
        if command and name.startswith("linux-"):
            compile_module(command, SHIPPED / module_name(name))
            made = True
    return made


def _is_built(library: Path) -> bool:
    """Return whether a library exists, or its object file while there is still no linker for other platforms."""
    return library.is_file() or (library.with_suffix(".o").is_file() and find_spec("ziglang") is None)


if __name__ == "__main__":
    for_wheels = "--portable" in sys.argv[1:]
    wheels = PORTABLE if for_wheels else ()
    build(tuple(dict.fromkeys((*wheels, platform_name()))), portable=for_wheels)
