"""What is in atom_more.csv? ATOM's nightly runs with drafts, attention DP, EP, overlap, or disaggregated engines."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from measurements.filters import Raw
from measurements.labelled import KNOWN, Filters, flagged, flags, labelled_fields, read_labelled
from measurements.ledger import Ledger
from penstock.catalog.measurement import Measurement

_KEPT_FLAGS: Final = ("gpu_ambiguous", "gpu_unnamed", "tp_from_other_days", "drafter_broken")
_MESH: Final = "rocm-atomesh"
_FEW_RUN: Final = {"max_running_24": 24}
"""Flag of runs whose server admits this number of requests."""
_FILTERS: Final[Filters] = (
    *KNOWN,
    ("accuracy_low", flagged("accuracy_low")),
    ("drafter_changed", flagged("drafter_changed_that_day")),
    ("slow_outlier", flagged("slow_outlier")),
)


def read_atom_more(rows: Iterable[Raw], ledger: Ledger) -> Iterator[Measurement]:
    """Read every row that no filter drops."""
    return read_labelled(rows, _FILTERS, _fields, ledger)


def _fields(raw: Raw) -> dict[str, Any]:
    values = labelled_fields(raw, _KEPT_FLAGS)
    admitted = next((most for flag, most in _FEW_RUN.items() if flag in flags(raw)), None)
    stack = "atomesh" if raw["source"] == _MESH else ""
    return values | {"max_running": admitted, "stack": stack}
