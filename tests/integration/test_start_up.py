"""Starting must stay fast: what is imported before it is needed is counted, not timed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"numpy", "pydantic", "pydantic_core", "re2", "huggingface_hub", "altair", "duckdb", "tomllib"}


def loaded_after(code: str) -> set[str]:
    result = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint(*sorted(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {name.partition(".")[0] for name in result.stdout.split()}


def test_importing_penstock_imports_nothing_else() -> None:
    added = loaded_after("import penstock") - loaded_after("pass")
    assert added == {"penstock"}


def test_the_command_line_loads_no_heavy_library_before_a_command_runs() -> None:
    assert not loaded_after("import penstock.cli.root") & HEAVY


RUNS = {
    "fit llama-3.1-70b --on mi300x": HEAVY - {"tomllib"} | {"yaml", "highspy", "scipy", "jinja2", "numba", "asyncio"},
    "catalog show mi300x": HEAVY - {"tomllib"} | {"yaml", "highspy", "scipy", "jinja2", "numba", "asyncio"},
    "predict llama-3.1-70b --on h200:2": {"pydantic", "duckdb", "yaml", "highspy", "scipy", "jinja2", "numba"},
    "preflight llama-3.1-70b --on mi300x:2": {"pydantic", "duckdb", "yaml", "highspy", "scipy", "jinja2", "numba"},
}
"""Commands, and the libraries that they do without."""


@pytest.mark.parametrize("command", RUNS)
def test_a_command_loads_only_the_libraries_that_it_needs(command: str) -> None:
    code = "import contextlib, io\nfrom penstock.cli.root import app\n"
    code += f"with contextlib.redirect_stdout(io.StringIO()):\n    app({command.split()}, standalone_mode=False)"
    assert not loaded_after(code) & RUNS[command]


def test_a_command_imports_no_other_command() -> None:
    code = "import contextlib, io\nfrom penstock.cli.root import app\n"
    code += "with contextlib.redirect_stdout(io.StringIO()):\n    app(['catalog', 'list'], standalone_mode=False)\n"
    code += "names = [name for name in sys.modules if name.startswith('penstock.cli.commands.')]\n"
    loaded_after(code + "assert names == ['penstock.cli.commands.catalog'], names")


def test_a_warning_is_one_line_without_a_path() -> None:
    code = "import sys, warnings, penstock.cli.root as root\n"
    code += "root.app = lambda: warnings.warn('no compiled library for vax')\nsys.argv = ['penstock']\nroot.main()"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stderr == "Warning: no compiled library for vax\n"


def test_a_command_uses_one_thread_of_linear_algebra_unless_told_otherwise() -> None:
    """Threads that spin between small products made a plan three times as slow."""
    code = "import os, sys\nfrom penstock.cli.root import main\nsys.argv = ['penstock', '--version']\n"
    code += "try:\n    main()\nfinally:\n    print(os.environ['OPENBLAS_NUM_THREADS'])"
    for told, used in ((None, "1"), ("4", "4")):
        env = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
        env |= {} if told is None else {"OPENBLAS_NUM_THREADS": told}
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
        assert result.stdout.split()[-1] == used


@pytest.mark.parametrize("module", ["penstock.model", "penstock.performance"])
def test_the_core_loads_no_framework(module: str) -> None:
    assert not loaded_after(f"import {module}") & (HEAVY - {"tomllib"} | {"rich", "click"})


def test_help_loads_no_part_of_the_library_it_does_not_show() -> None:
    unwanted = ("penstock.model", "penstock.catalog", "penstock.performance")
    loaded_after(f"import penstock.cli.root\nassert not set({unwanted}) & set(sys.modules)")


@pytest.mark.parametrize(
    ("line", "words", "completed"),
    [
        ("penstock pref", "penstock pref", "preflight"),
        ("penstock predict m --on h200:2,mi355", "penstock predict m --on h200 : 2,mi355", "2,mi355x"),
        ("penstock predict m --on=b300_s", "penstock predict m --on = b300_s", "b300_sxm"),
        ("penstock predict m --on b300_s", "penstock predict m --on b300_s", "b300_sxm"),
    ],
)
def test_bash_completes_what_was_typed(line: str, words: str, completed: str) -> None:
    folder = Path(sys.executable).parent
    script = f"""
        eval "$(penstock --completion bash)"
        COMP_LINE='{line}' COMP_POINT={len(line)} COMP_WORDS=({words}) COMP_CWORD={len(words.split()) - 1}
        _penstock_completion penstock
        echo "${{COMPREPLY[*]}}"
    """
    path = f"{folder}:{os.environ['PATH']}"
    result = subprocess.run(
        ["bash", "-c", script],  # noqa: S607 - the bash on the PATH
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PATH": path},
    )
    assert result.stdout.split() == [completed]


def test_a_shell_completes_commands_and_flags() -> None:
    def completed(words: str, count: int) -> set[str]:
        asked = {"_PENSTOCK_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(count)}
        command = shutil.which("penstock", path=str(Path(sys.executable).parent)) or "penstock"
        result = subprocess.run([command], capture_output=True, text=True, check=True, env={**os.environ, **asked})
        return {line.partition(",")[2] for line in result.stdout.split()}

    assert completed("penstock pre", 1) == {"predict", "preflight"}
    assert {"--context", "--kv"} <= completed("penstock fit --", 2)
    assert completed("penstock fit llama-3.3", 2) >= {"llama-3.3-70b"}
    assert completed("penstock predict llama-3.3-70b --on h20", 4) >= {"h200_sxm"}
    assert completed("penstock simulate m --on h200:2,mi35", 4) >= {"h200:2,mi355x", "h200:2,mi350x"}
    assert completed("penstock catalog show mi35", 3) >= {"mi350x", "mi355x"}
