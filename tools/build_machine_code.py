"""Compiles the simulator for any processor of this kind into the package, so that a wheel's first run need not.

One file is written for the Python and numba that run this; a wheel may carry several.
"""

import os
from pathlib import Path

os.environ["NUMBA_CPU_NAME"] = "generic"
os.environ["NUMBA_CPU_FEATURES"] = ""

from penstock.simulation import collect, warm
from penstock.simulation.loop import compiled, events, shipped

FOLDER = Path(__file__).parents[1] / "src/penstock/simulation/loop/machine_code"


def main() -> None:
    """Compile, and write the file."""
    target = FOLDER / shipped.file_name()
    target.unlink(missing_ok=True)
    warm.compile_once()
    entries = {
        compiled.entry_name(function): function
        for module in (events, collect)
        for function in vars(module).values()
        if hasattr(function, "overloads") and isinstance(getattr(function, "_cache", None), shipped.ShippedFirst)
    }
    FOLDER.mkdir(exist_ok=True)
    target.write_bytes(shipped.code_file(entries, compiled.sources()))
    print(f"{target.name}: {len(entries)} entries, {target.stat().st_size / 1024:,.0f} kB")


if __name__ == "__main__":
    main()
