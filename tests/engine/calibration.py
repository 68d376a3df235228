"""What does a step of this engine cost on this machine? The line through windows of known work."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations

import numpy as np

_TERMS = ("step_s", "decode_s", "prefill_token_s", "context_s", "pair_s", "idle_overhead_s", "overhead_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A stretch of time and the work the engine did in it, each a sum over its steps."""

    probe: str
    seconds: float
    steps: float
    decodes: float
    prefill_tokens: int
    contexts: float
    """Tokens behind each decode, summed over decodes and steps."""
    pairs: float
    """Query-key pairs of the prefill chunks: b*b/2 - a*a/2 for a chunk [a, b)."""
    idle_overheads: int
    """Requests to an idle engine whose way in and first token's way out lie in the window."""
    overheads: int
    """The same of requests to a busy engine."""

    def work(self) -> tuple[float, ...]:
        """In the order of the terms of the fit."""
        return (
            self.steps,
            self.decodes,
            self.prefill_tokens,
            self.contexts,
            self.pairs,
            self.idle_overheads,
            self.overheads,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Seconds of a step as a sum of non-negative parts, and what a request spends outside the engine's steps."""

    step_s: float
    decode_s: float = 0.0
    prefill_token_s: float = 0.0
    context_s: float = 0.0
    pair_s: float = 0.0
    idle_overhead_s: float = 0.0
    overhead_s: float = 0.0
    """Of a request that arrives while the engine computes: front end and engine share a process with that work."""
    median_error_fraction: float = 0.0
    """Of the windows it was fitted to."""

    def scaled(self, factor: float) -> "Fit":
        """The same machine, slower by a factor."""
        return replace(self, **{term: factor * getattr(self, term) for term in _TERMS})

    def seconds(self, window: Window) -> float:
        terms: list[float] = [getattr(self, term) for term in _TERMS]
        return sum(term * amount for term, amount in zip(terms, window.work(), strict=True))


def fit(windows: Sequence[Window]) -> Fit:
    """Non-negative least squares of relative errors, each kind of probe counting once.

    Repetitions are summed first: weighting single measurements by their own seconds would favour the fast ones.
    """
    cells = merge(windows)
    seconds = np.array([cell.seconds for cell in cells])
    work = np.array([cell.work() for cell in cells]) / seconds[:, None]
    best = min(_solutions(work), key=lambda terms: float(np.square(work @ terms - 1).sum()))
    return Fit(
        **dict(zip(_TERMS, best.tolist(), strict=True)),
        median_error_fraction=float(np.median(np.abs(work @ best - 1))),
    )


def _solutions(
    work: np.ndarray[tuple[int, int], np.dtype[np.float64]],
) -> Iterator[np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """Least squares with every choice of terms at zero: the best one without a negative is the constrained optimum."""
    terms = range(work.shape[1])
    for size in terms:
        for kept in combinations(terms, size + 1):
            solution = np.zeros(work.shape[1])
            solution[list(kept)] = np.linalg.lstsq(work[:, kept], np.ones(len(work)), rcond=None)[0]
            if (solution >= 0).all():
                yield solution


def merge(windows: Sequence[Window]) -> list[Window]:
    merged: dict[str, dict[str, float]] = {}
    for window in windows:
        sums = merged.setdefault(window.probe, {})
        for name, value in asdict(window).items():
            if name != "probe":
                sums[name] = sums.get(name, 0) + value
    return [Window(probe=probe, **sums) for probe, sums in merged.items()]  # type: ignore[arg-type] # sums of the same types
