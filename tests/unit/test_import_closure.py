"""What a refit's digest covers: every module that its file imports, those imported by name, and their data."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from import_closure import ROOT, SOURCES, closure, closure_digest

UNIT = ROOT / "tests" / "unit"
LOAD = """
import sys
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("loaded", sys.argv[1])
spec.loader.exec_module(module_from_spec(spec))
print(*(module.__file__ for module in [*sys.modules.values()] if getattr(module, "__file__", None)), sep="\\n")
"""


@pytest.mark.parametrize("name", ["performance/test_drafts_held_out.py", "benchmark/test_shipped_rows_fit.py"])
def test_whatever_is_imported_is_covered(name: str) -> None:
    search = os.pathsep.join(str(ROOT / folder) for folder in SOURCES)
    command = [sys.executable, "-c", LOAD, str(UNIT / name)]
    loaded = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": search}, capture_output=True, text=True, check=True
    )
    ours = {Path(line) for line in loaded.stdout.splitlines() if any(f"{ROOT}/{folder}/" in line for folder in SOURCES)}
    assert len(ours) > 50
    assert ours <= closure(UNIT / name)


def test_modules_imported_by_name_are_covered() -> None:
    covered = closure(UNIT / "compiled" / "test_built_library.py")
    assert ROOT / "src/penstock/routing/harm.py" in covered
    assert ROOT / "src/penstock/compiled/builder/emit.py" in covered


def test_the_data_of_a_package_is_covered() -> None:
    assert ROOT / "src/penstock/catalog/data/prices/h100_sxm.toml" in closure(UNIT / "performance" / "test_accuracy.py")


def test_what_a_test_says_it_reads_changes_its_digest() -> None:
    test = UNIT / "economics" / "test_finance.py"
    assert (
        len({closure_digest(test), closure_digest(test, ("README.md",)), closure_digest(test, ("docs/evidence.md",))})
        == 3
    )
