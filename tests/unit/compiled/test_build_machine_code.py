"""The tool that builds the libraries of a wheel builds each of them once."""

import os
import subprocess
from importlib.util import find_spec
from pathlib import Path

import build_machine_code as tool
import pytest

from penstock.compiled.library import file_name, platform_name
from penstock.gateway.inside_envoy.module_library import module_name


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Replace the builder by one that writes empty libraries, and record what it is asked to build."""
    asked: list[list[str]] = []

    def build(command: list[str], *, env: dict[str, str], **_: object) -> None:
        assert env["PYTHONPATH"].endswith(f"{os.pathsep}/packages/of/pip")
        names = [Path(item.rpartition("=")[2]) for item in command[3:]]
        asked.append([name.name for name in names])
        for name in names:
            name.write_bytes(b"")

    monkeypatch.setattr(tool, "SHIPPED", tmp_path / "shipped")
    monkeypatch.setattr(tool, "HEADER", tmp_path / "penstock.h")
    monkeypatch.setattr(tool, "MODULE_HEADER", tmp_path / "module_table.h")
    monkeypatch.setattr(tool, "compile_module", lambda _command, file: file.write_bytes(b""))
    monkeypatch.setattr(subprocess, "run", build)
    monkeypatch.setenv("PYTHONPATH", "/packages/of/pip")
    return asked


def test_the_wheel_takes_the_libraries_that_the_checkout_has_built(builds: list[list[str]]) -> None:
    for _ in range(2):
        tool.build(tool.PORTABLE, portable=True)
        tool.build((platform_name(),), portable=False)
    assert builds == [[file_name(name) for name in tool.PORTABLE]]


def test_libraries_for_this_glibc_alone_are_built_again_for_a_wheel(builds: list[list[str]]) -> None:
    tool.build((platform_name(),), portable=False)
    tool.build(tool.PORTABLE, portable=True)
    assert builds == [[file_name()], [file_name(name) for name in tool.PORTABLE]]


def test_the_module_inside_envoy_is_compiled_for_each_platform(builds: list[list[str]], tmp_path: Path) -> None:
    tool.build(tool.PORTABLE, portable=True)
    assert len(builds) == 1
    if find_spec("ziglang"):
        assert {module_name(name) for name in tool.PORTABLE} <= {file.name for file in (tmp_path / "shipped").iterdir()}


def test_other_sources_are_built_again(builds: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    tool.build(tool.PORTABLE, portable=True)
    monkeypatch.setattr(tool, "stamp", lambda: "another")
    tool.build(tool.PORTABLE, portable=True)
    assert len(builds) == 2


@pytest.mark.parametrize(("linker", "times"), [(None, 1), (object(), 2)])
def test_an_object_file_is_kept_until_there_is_a_linker(
    builds: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linker: object, times: int
) -> None:
    monkeypatch.setattr(tool, "find_spec", lambda _name: None)
    tool.build(tool.PORTABLE, portable=True)
    for name in tool.PORTABLE:
        built = tmp_path / "shipped" / file_name(name)
        built.rename(built.with_suffix(".o"))
    monkeypatch.setattr(tool, "find_spec", lambda _name: linker)
    tool.build(tool.PORTABLE, portable=True)
    assert len(builds) == times
