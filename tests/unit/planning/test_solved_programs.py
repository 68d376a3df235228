"""A program is solved once, and a kept solution is used only if it is a solution of the program."""

from dataclasses import dataclass, field
from math import inf
from pathlib import Path

import pytest

from penstock.api import trial_files as module
from penstock.api.trial_files import ContentFiles, program_files
from penstock.planning.optimizer.milp import Milp
from penstock.planning.optimizer.solved_programs import Optimum, SolvedPrograms, keep_solutions

FOUND = Optimum(values=(3.0, 0.0), cost=3.0, gap_fraction=0.0, seconds=0.25)
KEY = "program"


def program(at_least: float = 2.5) -> Milp:
    milp = Milp()
    terms = [(milp.variable(cost=cost, upper=9, whole=True), 1.0) for cost in (1.0, 2.0)]
    milp.row(terms, at_least=at_least)
    return milp


def solved(milp: Milp) -> Optimum | None:
    return milp.solve(gap_fraction=0.0, search_nodes=100)


@dataclass
class Solver:
    """A solver that counts its calls."""

    found: Optimum | None = FOUND
    calls: list[None] = field(default_factory=list)

    def __call__(self) -> Optimum | None:
        self.calls.append(None)
        return self.found


def files(folder: Path) -> ContentFiles:
    return ContentFiles(folder, lambda: "solver")


def test_an_equal_program_is_solved_once_inside_the_block_and_a_changed_one_again() -> None:
    with keep_solutions():
        first, same, larger = solved(program()), solved(program()), solved(program(3.5))
    assert first is not None
    assert same is first
    assert larger is not None
    assert (first.cost, larger.cost) == (3.0, 4.0)
    assert solved(program()) is not first


def test_the_next_process_reads_the_solution_of_the_first(tmp_path: Path) -> None:
    first, second = Solver(), Solver()
    assert SolvedPrograms(files(tmp_path)).recall(KEY, 2, first) == FOUND
    assert SolvedPrograms(files(tmp_path)).recall(KEY, 2, second) == FOUND
    assert (len(first.calls), len(second.calls)) == (1, 0)


def test_a_program_without_a_solution_is_solved_once_per_process(tmp_path: Path) -> None:
    solver = Solver(found=None)
    for programs in (SolvedPrograms(files(tmp_path)), SolvedPrograms(files(tmp_path))):
        assert programs.recall(KEY, 2, solver) is programs.recall(KEY, 2, solver) is None
    assert len(solver.calls) == 2


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {"values": [3.0, 0.0], "cost": 3.0},
        {"values": [3.0], "cost": 3.0, "gap_fraction": 0.0, "seconds": 0.0},
        {"values": [3.0, "0"], "cost": 3.0, "gap_fraction": 0.0, "seconds": 0.0},
        {"values": [3.0, 0.0], "cost": inf, "gap_fraction": 0.0, "seconds": 0.0},
    ],
)
def test_a_document_that_is_no_solution_of_the_program_is_ignored(tmp_path: Path, document: object) -> None:
    solver, store = Solver(), files(tmp_path)
    store.write(KEY, document)
    assert SolvedPrograms(store).recall(KEY, 2, solver) == FOUND
    assert len(solver.calls) == 1


def test_programs_are_kept_unless_the_variable_turns_the_cache_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert program_files() is None
    monkeypatch.delenv(module.VARIABLE)
    kept = program_files()
    assert kept is not None
    assert kept.folder == tmp_path / "penstock" / "programs"
