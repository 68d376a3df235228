"""A library that is built here, and its object file, return what the shipped library returns."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.compiled import interface, library
from penstock.compiled.interface import exported_functions
from penstock.compiled.opened import ObjectFile, Opened, SharedLibrary, open_library
from penstock.routing.baselines.all_policies import POLICIES
from penstock.simulation.outcome import Outcome
from penstock.simulation.run import simulate
from penstock.simulation.run_options import Fault, Options, Routing
from simulated import conversation_lengths, pool, result_bytes

_WITHOUT_A_LINKER = (
    "import sys\n"
    "from penstock.compiled.builder import build_library, emit\n"
    "emit._linker = lambda *_, **__: None\n"
    "build_library.main(sys.argv[1:])\n"
)
ROUTINGS = [
    None,
    Routing(),
    Routing(pick=POLICIES["dynamo"].pick),
    Routing(pickers=2, faults=(Fault(kind="dies", replica=1, at_s=0.5, for_s=1.0),)),
]


def digests(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Run every case with a library, and return the bytes of its results."""
    with monkeypatch.context() as patched:
        patched.setattr(interface, "load", lambda: opened)
        for function in exported_functions():
            patched.delitem(function.__dict__, "native", raising=False)
        found = [result_bytes(run(routing)) for routing in ROUTINGS]
        for function in exported_functions():
            function.__dict__.pop("native", None)
    return found


def run(routing: Routing | None) -> Outcome:
    sent = conversation_lengths(2_000, 30.0)
    return simulate([pool(replicas=3)], [sent], options=Options(routing=routing, keep_requests=True))


@pytest.mark.long
@pytest.mark.refit("src/penstock/compiled")
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_built_and_shipped_libraries_return_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = library.load()
    assert shipped is not None
    expected = digests(shipped, monkeypatch)
    built, linked = tmp_path / library.file_name(), tmp_path / "linked.so"
    subprocess.run([sys.executable, "-c", _WITHOUT_A_LINKER, str(built)], check=True, capture_output=True)
    assert [path.name for path in tmp_path.iterdir()] == [built.with_suffix(".o").name]
    loaded = open_library(built.with_suffix(".o"))
    assert isinstance(loaded, ObjectFile)
    assert digests(loaded, monkeypatch) == expected
    command = ["cc", "-shared", "-o", str(linked), str(built.with_suffix(".o")), "-lm"]
    subprocess.run(command, check=True)
    opened = open_library(linked)
    assert isinstance(opened, SharedLibrary)
    assert digests(opened, monkeypatch) == expected
