"""The library that is found, refused or missing, and what its functions return."""

import json
import shutil
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pytest

from penstock.compiled import c_header, library
from penstock.compiled.interface import ExportedFunction, exported_functions, layout_digest
from penstock.compiled.source_stamp import raw_digest, stamp
from penstock.compiled.tables import ArrayOf, Pointers, pointers_to, table_of
from penstock.errors import DeploymentError
from penstock.routing.baselines.all_policies import POLICIES
from penstock.routing.picker_calls import PickerTable
from penstock.simulation.loop import events
from penstock.simulation.outcome import Outcome
from penstock.simulation.run import simulate
from penstock.simulation.run_options import Fault, Options, Routing
from simulated import conversation_lengths, pool, result_bytes


class Numbers(NamedTuple):
    """A table."""

    rows: Annotated[Any, ArrayOf(np.float64, 2)]


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Neither the package nor the user's cache has a library."""
    (tmp_path / "shipped").mkdir()
    monkeypatch.setattr(library, "SHIPPED", tmp_path / "shipped")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    forget()
    yield tmp_path
    forget()


def forget() -> None:
    library.load.cache_clear()
    library._ready.cache_clear()  # noqa: SLF001 - the cache of another folder


@pytest.fixture
def as_python() -> Iterator[None]:
    """Run exported functions as Python."""
    functions = exported_functions()
    before = [function.__dict__.get("native") for function in functions]
    for function in functions:
        function.__dict__["native"] = None
    yield
    for function, native in zip(functions, before, strict=True):
        function.__dict__.pop("native")
        if native is not None:
            function.__dict__["native"] = native


def run(routing: Routing | None, count: int) -> Outcome:
    sent = conversation_lengths(count, 30.0)
    return simulate([pool(replicas=3)], [sent], options=Options(routing=routing, keep_requests=True))


ROUTINGS = [
    None,
    Routing(),
    Routing(pick=POLICIES["dynamo"].pick),
    Routing(pickers=2, faults=(Fault(kind="dies", replica=1, at_s=0.5, for_s=1.0),)),
]


@pytest.mark.parametrize("case", range(len(ROUTINGS)))
def test_a_run_as_python_is_the_compiled_one_to_the_last_bit(case: int, request: pytest.FixtureRequest) -> None:
    compiled = result_bytes(run(ROUTINGS[case], 120))
    request.getfixturevalue("as_python")
    assert result_bytes(run(ROUTINGS[case], 120)) == compiled


def test_a_shipped_library_is_used_if_its_sources_are_these(empty: Path) -> None:
    shipped = empty / "shipped" / library.file_name()
    shipped.write_bytes(b"")
    for built_from in ({"sources": raw_digest()}, {"stamp": stamp(), "sources": "a comment ago"}):
        (shipped.parent / library.STAMP_FILE).write_text(json.dumps(built_from))
        forget()
        assert library._ready() == shipped  # noqa: SLF001 - what load() opens
    for wrong in ('{"stamp": "another"}', "{", "[]"[:1]):
        (shipped.parent / library.STAMP_FILE).write_text(wrong)
        forget()
        assert library._ready() is None  # noqa: SLF001 - same


def test_a_library_kept_in_the_cache_is_used(empty: Path) -> None:
    kept = empty / "cache/penstock/compiled" / f"{stamp()}-{library.file_name()}"
    kept.parent.mkdir(parents=True)
    kept.with_suffix(".o").write_bytes(b"")
    assert library._ready() == kept.with_suffix(".o")  # noqa: SLF001 - what load() opens
    kept.write_bytes(b"")
    forget()
    assert library._ready() == kept  # noqa: SLF001 - same


@pytest.mark.usefixtures("empty")
def test_without_a_compiler_it_runs_as_python_and_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "can_build", lambda: False)
    assert library.is_ready(), "nothing to wait for"
    with pytest.warns(UserWarning, match=r"install penstock\[compile\]"):
        assert library.load() is None


@pytest.mark.usefixtures("empty")
def test_a_build_that_fails_is_told_and_survived(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(DeploymentError, match="cannot be built"):
        library.build()
    forget()
    with pytest.warns(UserWarning, match="runs as Python"):
        assert library.load() is None


def test_other_layouts_are_refused_with_one_line() -> None:
    found = library.load()
    assert found is not None
    run_function: Any = events.run
    with pytest.raises(DeploymentError, match="compiled for other record layouts") as caught:
        found.function("penstock_run", layout_digest(run_function) + 1, None)
    assert len(str(caught.value).splitlines()) == 1
    with pytest.raises(DeploymentError, match="other record layouts"):
        found.function("penstock_no_such_function", 1, None)


def test_a_digest_covers_fields_dimensions_and_arguments() -> None:
    class Other(NamedTuple):
        rows: Annotated[Any, ArrayOf(np.float64, 1)]

    def summed(numbers: Numbers, base: int) -> int:
        return len(numbers.rows) + base

    def of(annotations: dict[str, Any]) -> int:
        summed.__annotations__.update(annotations)
        return layout_digest(ExportedFunction(summed))

    digests = [of({}), of({"base": float}), of({"numbers": Other}), of({"return": float})]
    assert len(set(digests)) == 4


def test_a_table_refuses_arrays_of_another_layout() -> None:
    assert Pointers(Numbers(np.zeros((2, 3)))).address
    for wrong in (np.zeros(3), np.zeros((2, 3), np.float32), np.zeros((3, 2)).T):
        with pytest.raises(TypeError, match=r"Numbers\.rows"):
            Pointers(Numbers(wrong))
    with pytest.raises(TypeError, match="not a table"):
        Pointers((1, 2))


def test_pointers_are_made_again_only_for_other_arrays() -> None:
    first = Numbers(np.zeros((2, 3)))
    known = pointers_to(first)
    assert pointers_to(Numbers(first.rows)) is known
    assert pointers_to(Numbers(first.rows.copy())) is not known
    alive = weakref.ref(first.rows)
    del first
    assert alive() is None, "pointers must not keep the arrays of a finished run"


def test_the_header_is_the_one_of_these_functions() -> None:
    written = Path(c_header.__file__).with_name("penstock.h").read_text(encoding="ascii")
    assert written == c_header.c_header(), "run tools/build_machine_code.py"


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_c_program_reads_the_structs_that_python_writes(tmp_path: Path) -> None:
    table = table_of(PickerTable)
    assert table is not None
    source = tmp_path / "sizes.c"
    words = sum(1 + item.dimensions for item in table.arrays.values())
    source.write_text(
        '#include "penstock.h"\nPENSTOCK_SIZE(penstock_picker_table, '
        f"{8 * words});\nint64_t (*rank)(const penstock_picker_table *) = penstock_rank;\n"
    )
    folder = Path(c_header.__file__).parent
    command = [shutil.which("cc") or "cc", "-Wall", "-Werror", "-fsyntax-only", f"-I{folder}", str(source)]
    subprocess.run(command, check=True)


@pytest.mark.skipif(shutil.which("nm") is None, reason="no nm")
def test_no_library_needs_python() -> None:
    libraries = [path for path in library.SHIPPED.glob("libpenstock-linux*") if path.suffix == ".so"]
    for path in libraries:
        symbols = subprocess.run([shutil.which("nm") or "nm", "-D", path], capture_output=True, text=True, check=True)
        assert "penstock_run" in symbols.stdout
        assert not [line for line in symbols.stdout.splitlines() if line.split()[-1].startswith(("Py", "_Py", "NRT"))]


def test_simulating_imports_no_compiler() -> None:
    code = (
        "import sys, numpy as np\n"
        "from penstock.simulation.run import simulate\n"
        "from penstock.simulation.replica import Replica, ReplicaPool\n"
        "from penstock.performance.step.step_cost import StepCost\n"
        "from penstock.simulation.run_options import Options, Routing\n"
        "from penstock.workload import Requests\n"
        "one = Requests(arrival_s=np.zeros(1), input_tokens=np.ones(1, np.int32), output_tokens=np.ones(1, np.int32),"
        " slo_class=np.zeros(1, np.uint8))\n"
        "cost = StepCost(step_s=0.01, decode_s=0.0, prefill_token_s=0.0)\n"
        "pools = [ReplicaPool(name='one', replica=Replica(cost=cost, kv_blocks=100))]\n"
        "assert simulate(pools, [one], options=Options(routing=Routing())).requests == 1\n"
        "print(*{name.partition('.')[0] for name in sys.modules} & {'numba', 'llvmlite'})\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
