"""What is in sglang_cookbook.csv? SGLang's own figures for small, dense and new models, with its server's limits."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from measurements.filters import Raw
from measurements.labelled import KNOWN, Filters, flagged, labelled_fields, read_labelled
from measurements.ledger import Ledger
from penstock.catalog.measurement import UNMERGED, Measurement

_FILTERS: Final[Filters] = (
    *KNOWN,
    ("pipeline", lambda raw: raw["pp"] != "1"),
    ("rate_contradicts_latency", flagged("rate_and_latency_disagree")),
)


def read_cookbook(rows: Iterable[Raw], ledger: Ledger) -> Iterator[Measurement]:
    """Read every row that no filter drops."""
    return read_labelled(rows, _FILTERS, _fields, ledger)


def _fields(raw: Raw) -> dict[str, Any]:
    values = labelled_fields(raw, ["queued"])
    unmerged = [] if raw["merged"] == "1" else [UNMERGED]
    return values | {"flag": ";".join([*filter(None, [values["flag"]]), *unmerged])}
