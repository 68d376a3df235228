"""How alike are two measurements? The covariance of their logarithms, as a sum of reasons to be alike."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from kinship.cases import COLUMNS, REFERENCE, Cases
from penstock.performance.step.work import Array

_USERS, _LENGTHS = 2.0, 2.5
"""Doublings of the load and of a length after which two rows are alike by 0.6."""
_SLOW, _QUICK = 10.0, 0.7
"""Months after which software has changed."""
_UNDATED: Final = 0.5
Single = npt.NDArray[np.float32]
LEVELS: Final = {"all": None, "vendor": "vendor", "part": "part", "stack": "stack", "engine": "engine"}
GROUPS: Final = {
    **{name: (name,) for name in COLUMNS},
    "launches": (
        *("layers", "mixtures", "state_layers", "messages", "step"),
        *("exchanges", "matrices", "quantised"),
    ),
    "memory": ("weights", "experts", "cache"),
    "arithmetic": ("compute", "prefill"),
}
"""Columns whose slowdowns move together: a chip's launches, its memory, its arithmetic."""
PLAIN: Final = (
    *("vendor", "part", "engine", "stack", "kind", "kind vendor", "kind engine", "kind stack"),
    *("family", "family vendor", "family part", "family engine", "family stack"),
    *("weights vendor", "weights stack", "split engine", "setup"),
)
LOADED: Final = ("stack", "family", "kind stack", "family stack", "setup")
SLOW: Final = ("stack", "family stack")
QUICK: Final = ("stack", "setup")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spreads:
    """How far each reason may move the logarithm of a time: standard deviations, by name."""

    of: Mapping[str, float]
    shift: Array
    """Logarithm of the common slowdowns over the reference."""

    @staticmethod
    def read(path: Path) -> "Spreads":
        """Read what `fit` wrote."""
        document = json.loads(path.read_text(encoding="utf-8"))
        return Spreads(of=document["spreads"], shift=np.array([document["shift"][name] for name in COLUMNS]))

    def write(self, path: Path) -> None:
        """Keep them, to three digits."""
        document = {
            "spreads": {name: float(f"{value:.3g}") for name, value in self.of.items()},
            "shift": {name: float(f"{value:.3g}") for name, value in zip(COLUMNS, self.shift, strict=True)},
        }
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def linear(found: Cases, shift: Array) -> tuple[Array, Array, Array]:
    """Logarithm of each time at the reference, the share of each column in it, and what is left of the measured one."""
    slowdowns = REFERENCE * np.exp(shift)
    at = np.log(found.light @ slowdowns)
    shares = found.light * slowdowns / np.exp(at)[:, None]
    reference = at - shares @ shift
    return reference, shares, np.log(found.seconds) - reference


def reasons(found: Cases, shares: Array) -> Iterator[tuple[str, Single]]:
    """Each reason to be alike as a matrix, one at a time; its squared spread times it, summed, is the covariance."""
    for name in PLAIN:
        yield name, _same(found, name)
    load = _near(found.users, _USERS)
    lengths = load * _near(found.inputs, _LENGTHS) * _near(found.outputs, _LENGTHS)
    for name in LOADED:
        yield f"{name} by load", _same(found, name) * (load if name == "stack" else lengths)
    slow, quick = _since(found, _SLOW), _since(found, _QUICK)
    for name in SLOW:
        yield f"{name} in a year", _same(found, name) * slow
    for name in QUICK:
        yield f"{name} in a month", _same(found, name) * quick
    for group, columns in GROUPS.items():
        share = shares[:, [COLUMNS.index(name) for name in columns]].sum(axis=1)
        both = np.outer(share, share).astype(np.float32)
        if both.any():
            for level, label in LEVELS.items():
                yield f"{group} of {level}", both if label is None else both * _same(found, label)


def _same(found: Cases, label: str) -> Single:
    return np.equal.outer(found.labels[label], found.labels[label]).astype(np.float32)


def covariance(found: Cases, shares: Array, spreads: Spreads) -> Array:
    """Sum the reasons, and what is noise of one row alone."""
    whole = np.zeros((len(found), len(found)), np.float32)
    for name, matrix in reasons(found, shares):
        whole += np.float32(spreads.of.get(name, 0.0) ** 2) * matrix
    exact: Array = whole.astype(np.float64)
    exact[np.diag_indices(len(found))] += spreads.of["noise"] ** 2 + spreads.of["undated"] ** 2 * found.undated
    return exact


def _near(values: Array, length: float) -> Single:
    return np.asarray(np.exp(-0.5 * (np.subtract.outer(values, values) / length) ** 2), np.float32)


def _since(found: Cases, months: float) -> Single:
    apart = np.exp(-np.abs(np.subtract.outer(found.month, found.month)) / months)
    either, both = np.logical_or.outer(found.undated, found.undated), np.logical_and.outer(found.undated, found.undated)
    return np.asarray(np.where(both, 1.0, np.where(either, _UNDATED, apart)), np.float32)
