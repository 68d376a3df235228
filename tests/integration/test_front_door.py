"""`import penstock` costs nothing, and its names mean the same whatever was imported before."""

import subprocess
import sys

import pytest

import penstock


def said(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("name", ["catalog", "preflight"])
def test_a_call_keeps_its_name_when_the_package_of_the_same_name_is_imported(name: str) -> None:
    before = f"import penstock, penstock.{name}; print(callable(penstock.{name}))"
    imported = f"from penstock.{name} import __name__ as found"
    after = f"import penstock; penstock.{name}; {imported}; print(callable(penstock.{name}), found)"
    assert said(before) == "True"
    assert said(after) == f"True penstock.{name}"


def test_fit_loads_neither_numpy_nor_the_simulator() -> None:
    code = "import sys, penstock; penstock.fit('llama-3.1-8b', 'h100'); print({'numpy', 'numba'} & set(sys.modules))"
    assert said(code) == "set()"


def test_every_public_name_is_listed_and_documented() -> None:
    assert set(penstock.__all__) <= set(dir(penstock))
    for name in penstock.__all__:
        assert getattr(penstock, name).__doc__, name
