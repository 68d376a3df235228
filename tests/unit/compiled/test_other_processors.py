"""The library for aarch64, run by an emulator, returns the same bits as the library for x86-64.

Both processors call `exp`, `exp2`, `log` and `pow` of glibc, whose results are equal if x86-64 has FMA. musl rounds
some of them differently in the last bit.
"""

import shutil
import struct
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from penstock.compiled.library import SHIPPED, file_name, platform_name
from penstock.simulation.loop import events
from penstock.simulation.loop.world import World
from penstock.simulation.run import simulate
from penstock.simulation.run_options import Fault, Options, Routing
from simulated import conversation_lengths, pool

SOURCE = Path(__file__).with_name("replay_call.c")
SYSROOT = Path("/usr/aarch64-linux-gnu")
EMULATOR = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
CASES = {
    "unrouted": None,
    "routed": Routing(),
    "two pickers and a fault": Routing(pickers=2, faults=(Fault(kind="dies", replica=1, at_s=0.5, for_s=1.0),)),
}


class Call(NamedTuple):
    """One recorded call of the loop: its arguments, and the bytes of the arrays and the result after it."""

    shapes: list[tuple[int, ...]]
    before: list[bytes]
    budget: int
    policy: int
    after: list[bytes]
    result: int


def recorded_calls(routing: Routing | None, monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """Simulate 300 requests with the library of this processor, and record each call of the loop."""
    calls, loop = list[Call](), events.run

    class Recorder:
        native = staticmethod(lambda: None)

        def __call__(self, world: World, budget: int, policy: Any) -> int:  # noqa: ANN401 - an address
            shapes, before = [array.shape for array in world], [array.tobytes() for array in world]
            result = loop(world, budget, policy)
            calls.append(Call(shapes, before, budget, policy, [array.tobytes() for array in world], result))
            return result

    monkeypatch.setattr(events, "run", Recorder())
    sent = conversation_lengths(300, 30.0)
    simulate([pool(replicas=3)], [sent], options=Options(routing=routing))
    return calls


def written(call: Call) -> bytes:
    """Return a call in the format that replay_call.c reads."""
    parts = [struct.pack("q", len(call.before))]
    table: list[tuple[int, int]] = []
    for index, (shape, array) in enumerate(zip(call.shapes, call.before, strict=True)):
        parts += [struct.pack("q", len(array)), array]
        table += [(1, index), *((0, length) for length in shape)]
    arguments = [(2, 0), (0, call.budget), (3, 0) if call.policy else (0, 0)]
    for pairs in (table, arguments):
        parts += [struct.pack("q", len(pairs)), *(struct.pack("qq", *pair) for pair in pairs)]
    return b"".join(parts)


def differences(call: Call, output: bytes) -> dict[str, int]:
    """Return the number of bytes in which each array differs, for the arrays that do."""
    found = {"result": 8} if struct.unpack_from("q", output)[0] != call.result else {}
    start = 8
    for field, array in zip(World._fields, call.after, strict=True):
        mine, theirs = (np.frombuffer(raw, np.uint8) for raw in (array, output[start : start + len(array)]))
        if (mine != theirs).any():
            found[field] = int((mine != theirs).sum())
        start += len(array)
    assert start == len(output)
    return found


def replay(calls: list[Call], command: list[str], library: Path, folder: Path) -> list[dict[str, int]]:
    """Replay calls with a program, and return how each one differs from the recorded call."""
    given, taken, found = folder / "given", folder / "taken", []
    for call in calls:
        given.write_bytes(written(call))
        symbols = ["penstock_run_packed", "penstock_pick"]
        subprocess.run([*command, str(library), *symbols, str(given), str(taken)], check=True)
        found.append(differences(call, taken.read_bytes()))
    return found


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_c_program_gets_the_results_that_python_gets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, library = tmp_path / "replay", SHIPPED / file_name()
    if not library.is_file():
        pytest.skip("no shipped library; run make machine-code")
    subprocess.run(["cc", "-O1", "-o", str(program), str(SOURCE), "-ldl"], check=True)  # noqa: S607 - the compiler
    calls = recorded_calls(Routing(), monkeypatch)
    assert replay(calls, [str(program)], library, tmp_path) == [{}] * len(calls)


@pytest.mark.skipif(platform_name() != "linux-x86_64", reason="compares with x86-64")
@pytest.mark.skipif(EMULATOR is None or not SYSROOT.is_dir(), reason="no qemu-user-static or libc6-arm64-cross")
@pytest.mark.skipif(find_spec("ziglang") is None, reason="no ziglang to link for aarch64")
@pytest.mark.parametrize("case", CASES)
def test_aarch64_returns_the_bits_of_x86(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, library = tmp_path / "replay", SHIPPED / file_name("linux-aarch64")
    if not library.is_file():
        pytest.skip("no shipped library for aarch64; run make machine-code")
    compiler = [sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-gnu.2.34", "-O1"]
    subprocess.run([*compiler, "-o", str(program), str(SOURCE)], check=True, capture_output=True)
    calls = recorded_calls(CASES[case], monkeypatch)
    assert len(calls) >= 2
    assert sum(before != after for call in calls for before, after in zip(call.before, call.after, strict=True)) > 8
    found = replay(calls, [str(EMULATOR), "-L", str(SYSROOT), str(program)], library, tmp_path)
    assert found == [{}] * len(calls)
