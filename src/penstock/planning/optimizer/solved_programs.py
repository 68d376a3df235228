"""Keeps the solutions of integer programs by content, so that no program is solved twice."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, replace
from math import isfinite
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """The best solution found, and an upper bound on the fraction by which a better solution could be cheaper."""

    values: tuple[float, ...]
    cost: float
    gap_fraction: float
    seconds: float

    def or_cheaper(self, other: "Optimum") -> "Optimum":
        """Return the cheaper of two solutions of one program, with the bound that was proven for `self`."""
        if self.cost <= other.cost:
            return self
        bound = self.cost * (1 - self.gap_fraction)
        return replace(other, gap_fraction=max(0.0, 1 - bound / other.cost))


class SolutionStore(Protocol):
    """Solutions of earlier processes."""

    def read(self, key: str) -> object:
        """Return the document that was kept under a key; None if there is none."""

    def write(self, key: str, document: object) -> None:
        """Keep a document."""


@dataclass(slots=True)
class SolvedPrograms:
    """Solutions of this process, and of earlier processes if there is a store."""

    store: SolutionStore | None = None
    _known: dict[str, Optimum | None] = field(default_factory=dict)

    def recall(self, key: str, variables: int, solve: Callable[[], Optimum | None]) -> Optimum | None:
        """Return the solution of a program; solve the program if its solution is not known.

        `variables` is the number of variables of the program. A kept solution with another number is not used.
        """
        if key not in self._known:
            kept = None if self.store is None else self.store.read(key)
            found = _parse(kept, variables)
            if found is None:
                found = solve()
                if self.store is not None and found is not None:
                    self.store.write(key, asdict(found))
            self._known[key] = found
        return self._known[key]


def _parse(document: object, variables: int) -> Optimum | None:
    """Return a kept solution; None if there is none or if the document is not a solution of the program."""
    if not isinstance(document, dict) or document.keys() != {"values", "cost", "gap_fraction", "seconds"}:
        return None
    values, *numbers = (document[name] for name in ("values", "cost", "gap_fraction", "seconds"))
    if not isinstance(values, list) or len(values) != variables:
        return None
    if not all(isinstance(number, float) and isfinite(number) for number in (*values, *numbers)):
        return None
    cost, gap, seconds = numbers
    return Optimum(values=tuple(values), cost=cost, gap_fraction=gap, seconds=seconds)


_CURRENT: ContextVar[SolvedPrograms | None] = ContextVar("solved programs", default=None)


@contextmanager
def keep_solutions(store: SolutionStore | None = None) -> Iterator[None]:
    """Solve no program twice inside the block, and use the solutions in the store."""
    token = _CURRENT.set(SolvedPrograms(store))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def recall_or_solve(key: str, variables: int, solve: Callable[[], Optimum | None]) -> Optimum | None:
    """Return the solution of a program, from memory inside a block of `keep_solutions`."""
    current = _CURRENT.get()
    return solve() if current is None else current.recall(key, variables, solve)
