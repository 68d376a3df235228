"""Optimises the linked IR once for a platform, and writes an object file and a shared library."""

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

import llvmlite.binding as llvm

from penstock.compiled.library import platform_name

_INLINE_THRESHOLD: Final = 2000
"""Inlining threshold of LLVM for this library.

With LLVM's own threshold of 225, measured runs take 16% longer. If all functions that are not cold are inlined, the
build takes twice as long.
"""


class Target(NamedTuple):
    """A platform, as LLVM and zig's linker name it."""

    triple: str
    cpu: str
    zig: str


TARGETS: Final = {
    # SSE4.1 dates from 2009. Without it `floor` and `rint` are calls. Newer instructions gain nothing.
    "linux-x86_64": Target("x86_64-unknown-linux-gnu", "x86-64-v2", "x86_64-linux-gnu.2.17"),
    "linux-aarch64": Target("aarch64-unknown-linux-gnu", "generic", "aarch64-linux-gnu.2.17"),
    "macos-aarch64": Target("arm64-apple-macosx11.0.0", "apple-m1", "aarch64-macos"),
}
_FORBIDDEN: Final = ("Py", "_Py", "NRT_", "numba_")


def object_code(bitcode: bytes, cold: set[str], symbols: set[str], platform: str) -> bytes:
    """Optimise a module of raw IR for a platform and return its object file."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_bitcode(bitcode)
    target = TARGETS.get(platform) or Target(llvm.get_default_triple(), "", "")
    for item in (*module.functions, *module.global_variables):
        if not item.is_declaration and item.name not in symbols:
            item.linkage = "internal"
    for function in module.functions:
        if function.name in cold and not function.is_declaration:
            function.add_function_attribute("noinline")
    machine = llvm.Target.from_triple(target.triple).create_target_machine(cpu=target.cpu, opt=3, reloc="pic")
    module.triple, module.data_layout = target.triple, str(machine.target_data)
    tuning = llvm.create_pipeline_tuning_options(speed_level=3)
    tuning.loop_vectorization = tuning.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)
    module.verify()
    needed = [item.name for item in module.functions if item.is_declaration]
    foreign = [name for name in needed if name.startswith(_FORBIDDEN)]
    if foreign:
        raise RuntimeError(f"these functions cannot be compiled because they call Python: {', '.join(foreign)}")
    code: bytes = machine.emit_object(module)
    return code


def set_inlining() -> None:
    """Set LLVM's inlining threshold for this process."""
    llvm.set_option("", f"--inline-threshold={_INLINE_THRESHOLD}")


def link(code: bytes, library: Path, platform: str, *, portable: bool) -> Path:
    """Write a shared library, or the object file if there is no linker.

    `portable` links for an old glibc, if possible.
    """
    library.parent.mkdir(parents=True, exist_ok=True)
    written = library.with_suffix(".o")
    written.write_bytes(code)
    command = _linker(platform, portable=portable)
    if command is None:
        return written
    shared = [*command, "-shared", "-o", str(library), str(written), "-lm", "-s"]
    done: Any = subprocess.run(shared, capture_output=True, text=True, check=False)  # noqa: S603 - a linker and our files
    if done.returncode:
        return written
    written.unlink()
    return library


def _linker(platform: str, *, portable: bool) -> list[str] | None:
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", TARGETS[platform].zig] if platform in TARGETS else None
    has_zig = zig is not None and find_spec("ziglang") is not None
    compiler = shutil.which("cc") if platform == platform_name() else None
    if has_zig and (portable or compiler is None):
        return zig
    return [compiler] if compiler else None
