"""Compiles the simulator's library on first use and reports how long it takes.

Compilation happens once per machine and version of the package.
"""

from time import perf_counter

from penstock.api.progress import ProgressListener
from penstock.compiled.library import BUILD_COST, build, is_kept, is_ready
from penstock.errors import DeploymentError


def compile_first(watch: ProgressListener) -> None:
    """Compile the simulator's library, and report the time taken.

    Nothing is done if the package or this machine already has a compiled library.
    """
    if is_ready():
        return
    watch.message(f"Compiling the simulator, once per machine and version: {BUILD_COST}.")
    watch.progress("compiling the simulator, once per machine and version", 0, 0)
    start_s = perf_counter()
    try:
        build()
    except DeploymentError as error:
        watch.message(f"{error}. The simulator now runs as plain Python, about a thousand times slower.")
        return
    after = (
        "the next run reuses the compiled simulator"
        if is_kept()
        else "the compile cache cannot be written, so the next run compiles again"
    )
    watch.message(f"Compiled the simulator in {perf_counter() - start_s:.0f} s; {after}.")
