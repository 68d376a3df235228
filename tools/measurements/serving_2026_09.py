"""What is in serving_2026_09.csv? ATOM a month later, ATOMesh on MI350X, and the cookbook's GLM-5.3 and Kimi-K3."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from measurements.filters import Raw
from measurements.labelled import KNOWN, flags, labelled_fields, read_labelled
from measurements.ledger import Ledger
from penstock.catalog.measurement import Measurement

_KEPT_FLAGS: Final = ("acceptance_pinned", "queued")
_INFERRED: Final = {"tp_inferred": "split_derived"}
_DRAFTERS: Final = {"eagle3": "drafter"}
_MESH: Final = "rocm-atomesh"


def read_serving(rows: Iterable[Raw], ledger: Ledger) -> Iterator[Measurement]:
    """Read every row that no filter drops."""
    return read_labelled(rows, KNOWN, _fields, ledger)


def _fields(raw: Raw) -> dict[str, Any]:
    # A date may have a remark: "2026-10 (v0.5.18 and v0.5.19; day not stated)".
    values = labelled_fields({**raw, "date": raw["date"].partition(" ")[0]}, _KEPT_FLAGS)
    derived = [kept for flag, kept in _INFERRED.items() if flag in flags(raw)]
    return values | {
        "drafted": _DRAFTERS.get(raw["drafted"], raw["drafted"]),
        "stack": "atomesh" if raw["source"] == _MESH else "",
        "tpot_statistic": raw["statistic"],
        "ttft_statistic": raw["statistic"],
        "flag": ";".join([*filter(None, [values["flag"]]), *derived]),
    }
