"""Builds the library for one or more platforms: `python -m ...build_library FILE` or `PLATFORM=FILE ...`."""

import os
import sys
from pathlib import Path
from time import process_time

# The IR must not depend on the processor that builds it.
os.environ["NUMBA_CPU_NAME"] = "generic"
os.environ["NUMBA_CPU_FEATURES"] = ""

from penstock.compiled.builder import emit, front_end
from penstock.compiled.interface import exported_functions
from penstock.compiled.library import platform_name


def main(wanted: list[str]) -> None:
    """Build a library for each platform from one module of IR, and print the processor time."""
    front_end.keep_raw_code()
    front_end.teach_numba()
    emit.set_inlining()
    functions = exported_functions()
    module, cold = front_end.raw_module(functions)
    symbols = {f"{item.symbol}{ending}" for item in functions for ending in ("", "_layout", "_packed")}
    raw, front_s = module.as_bitcode(), process_time()
    for item in wanted:
        platform, _, file = item.rpartition("=")
        name = platform or platform_name()
        code = emit.object_code(raw, cold, symbols, name)
        made = emit.link(code, Path(file), name, portable=bool(platform))
        size = made.stat().st_size / 1024
        print(f"{made.name}: {len(functions)} functions, {size:,.0f} kB")  # noqa: T201 - a program of its own
    print(f"processor time: {front_s:.0f} s types and IR, {process_time() - front_s:.0f} s machine code")  # noqa: T201 - same


if __name__ == "__main__":
    main(sys.argv[1:])
