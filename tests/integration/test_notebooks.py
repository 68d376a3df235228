"""The notebooks people copy from run, and store what every cell that ends in a value shows."""

import json
from pathlib import Path
from typing import Any

import pytest
from run_notebooks import NOTEBOOKS, outputs_of, run_cell, shown_text

import penstock


@pytest.mark.in_turn(4)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_asks_all_six_questions(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    names: dict[str, Any] = {}
    values = [run_cell("".join(cell["source"]), names) for cell in cells]
    for cell, value in zip(cells, values, strict=True):
        stored, now = ([shown_text(one) for one in outputs] for outputs in (cell["outputs"], outputs_of(value, 0)))
        assert stored == now, "`make notebooks` stores what the cells show now"
    shown = [value for value in values if value is not None]
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


def test_there_is_a_notebook() -> None:
    assert NOTEBOOKS
