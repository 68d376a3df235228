"""The notebooks people copy from run, and show something at every cell that ends in a value."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

import penstock

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "examples" / "notebooks").glob("*.ipynb"))


def run_cell(source: str, names: dict[str, Any]) -> object:
    """Run a cell as a notebook does, and return the value of its last line."""
    body = ast.parse(source).body
    last = body[-1]
    shown = last if isinstance(last, ast.Expr) else None
    before = ast.Module(body=body if shown is None else body[:-1], type_ignores=[])
    exec(compile(before, "cell", "exec"), names)  # noqa: S102 - our own notebook
    return None if shown is None else eval(compile(ast.Expression(shown.value), "cell", "eval"), names)  # noqa: S307


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_asks_all_six_questions(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    names: dict[str, Any] = {}
    shown = [value for cell in cells if (value := run_cell(cell["source"], names)) is not None]
    answers = [value for value in shown if hasattr(value, "_repr_html_")]
    known = {name for name in penstock.__all__ if name.endswith("Answer")}
    assert {type(answer).__name__ for answer in answers} == known - {
        "AuditAnswer",
        "FitTogetherAnswer",
        "GuideAnswer",
        "PlanSharedAnswer",
        "SweepAnswer",
        "PredictDisaggregatedAnswer",
        "SimulateFleetAnswer",
    }
    assert all(answer._repr_html_().startswith("<pre") and len(repr(answer)) < 200 for answer in answers)
    assert all(cell["outputs"] == [] for cell in cells), "outputs are not kept: they would go stale"


def test_there_is_a_notebook() -> None:
    assert NOTEBOOKS
