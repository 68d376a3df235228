"""Compiles the simulator on first use, once per machine and version."""

from time import perf_counter

from penstock.api.progress import ProgressListener
from penstock.simulation.compile_simulator import COMPILE_COST, compile_once, is_compiled, is_kept


def compile_first(watch: ProgressListener) -> None:
    """Compile the simulator if this machine has no compiled copy, and report the time taken."""
    if is_compiled():
        return
    watch.message(f"Compiling the simulator, once per machine and version: {COMPILE_COST}.")
    watch.progress("compiling the simulator, once per machine and version", 0, 0)
    start_s = perf_counter()
    compile_once()
    after = "the next run reuses it" if is_kept() else "its cache cannot be written, so the next run compiles again"
    watch.message(f"Compiled the simulator in {perf_counter() - start_s:.0f} s; {after}.")
