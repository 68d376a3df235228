"""Reads and writes a power model as a document of plain values."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from penstock.performance.power.power_model import Draw, PowerModel, UnderLoad

_DIGITS: Final = 4


def to_document(model: PowerModel) -> dict[str, Any]:
    """Return the power model as a document of plain values, rounded to four significant digits."""
    return {
        "rows": model.rows,
        "spreads": {name: [_round(value) for value in span] for name, span in model.spreads.items()},
        "draws": [
            {
                "path": list(path),
                **_round_values(asdict(draw)),
                "under_load": _round_values(asdict(model.under_load[path])),
            }
            for path, draw in sorted(model.draws.items())
        ],
        "factors": {kernels: _round(value) for kernels, value in sorted(model.factors.items())},
    }


def from_document(document: Mapping[str, Any]) -> PowerModel:
    """Parse the document that `to_document` returns."""
    entries: Sequence[Mapping[str, Any]] = document["draws"]
    return PowerModel(
        draws={
            tuple(entry["path"]): Draw(**{name: entry[name] for name in ("idle", "memory", "arithmetic")})
            for entry in entries
        },
        under_load={tuple(entry["path"]): UnderLoad(**entry["under_load"]) for entry in entries},
        factors=document["factors"],
        spreads={name: (span[0], span[1]) for name, span in document["spreads"].items()},
        rows=document["rows"],
    )


def _round_values(values: Mapping[str, float]) -> dict[str, float]:
    return {name: value if isinstance(value, int) else _round(value) for name, value in values.items()}


def _round(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
