"""Compiles the simulator and the gateway's policy for any processor of this kind: a wheel's first run need not.

One file is written for the Python and numba that run this; a wheel may carry several.
"""

import os
from pathlib import Path
from tempfile import mkdtemp

# Code read back from a cache cannot be written again: numba keeps no object file of it.
os.environ["NUMBA_CACHE_DIR"] = mkdtemp()
os.environ["NUMBA_CPU_NAME"] = "generic"
os.environ["NUMBA_CPU_FEATURES"] = ""

from penstock.gateway.picker import compiled_policy
from penstock.simulation import collect, compile_simulator
from penstock.simulation.loop import events, observe, shipped_code

FOLDER = Path(__file__).parents[1] / "src/penstock/simulation/loop/machine_code"


def main() -> None:
    """Compile, and write the file, unless it was made from these very sources."""
    # By identity: modules import each other's.
    entries = {
        id(function): function
        for module in (events, collect, observe, compiled_policy)
        for function in vars(module).values()
        if hasattr(function, "overloads") and isinstance(getattr(function, "_cache", None), shipped_code.ShippedFirst)
    }
    target = FOLDER / shipped_code.file_name()
    if all(entry._cache.ready for entry in entries.values()):  # noqa: SLF001 - there is no public way
        print(f"{target.name} is up to date")
        return
    target.unlink(missing_ok=True)
    shipped_code.shipped_code.cache_clear()
    compile_simulator.compile_once()
    compiled_policy.compile_once()
    FOLDER.mkdir(exist_ok=True)
    target.write_bytes(shipped_code.code_file(entries.values()))
    print(f"{target.name}: {len(entries)} entries, {target.stat().st_size / 1024:,.0f} kB")


if __name__ == "__main__":
    main()
