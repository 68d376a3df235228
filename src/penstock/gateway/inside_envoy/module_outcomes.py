"""Records how requests of the module inside Envoy ended, for metrics and receipts, and its recorded decisions."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from penstock.gateway.inside_envoy.ended_ring import FAILED, GENERATES, LEFT, OWN_LIMITS, REFUSED, STREAMED, RingRecord
from penstock.gateway.inside_envoy.module_table import ModuleTable, table_file
from penstock.gateway.picker.decision_receipts import ReceiptBook
from penstock.gateway.picker.outcome_receipts import OutcomeBook, gap_line
from penstock.gateway.picker.outcome_rules import ENDED_REQUEST, EndedRequest
from penstock.gateway.picker.receipt_file import ReceiptFile
from penstock.gateway.state.routed_fleet import RoutedFleet
from penstock.routing.records import Records

_SHED: Final = 429
_GENERATIONS: Final = "generations.jsonl"
"""File with the names and classes of each generation of the fleet, by which records of earlier ones are read."""
_TEXTS: Final = ("tenant", "endpoint")
_NUMBERS: Final = tuple(
    name for name in EndedRequest._fields if name in set(RingRecord._fields) - {"slo_class", *_TEXTS}
)


class ModuleOutcomes:
    """Publisher of ended requests, and writer of one file of receipts if there is a path."""

    def __init__(self, path: Path | None, publish: Callable[[Records], None]) -> None:
        self._publish = publish
        self._file = None if path is None else ReceiptFile(path, gap_line)
        self._outcomes = OutcomeBook(publish=publish)
        self._names: dict[int, tuple[list[str], list[str]]] = {}
        """Models and adapters, and classes, of each generation."""
        self._pools: dict[str, str] = {}
        self._book: ReceiptBook | None = None
        self._tables: list[ModuleTable] = []
        """The tables of this fleet and of the one before, from which the module may still record a decision."""

    def use(self, folder: Path, fleet: RoutedFleet) -> None:
        """Go on with a fleet that was loaded. Records of earlier fleets may still come."""
        self._addresses = fleet.addresses
        self._remember(folder / _GENERATIONS, fleet)
        self._pools |= zip(fleet.addresses, fleet.pools, strict=True)
        self._tables = [*self._tables[-1:], ModuleTable(table_file(folder, fleet.generation))]
        self.close()
        if self._file is not None:
            self._book = ReceiptBook(self._file, 1, fleet.addresses, meters=True, publish=self._publish)
            self._outcomes = self._book.outcomes

    def write(self, rows: Records, reports: Records) -> None:
        """Record the requests that have ended, the decisions that the module recorded, and the engines' counts."""
        if len(rows):
            self._outcomes.record(self._read(rows))
        if self._book is None:
            return
        for table in self._tables:
            for decision in table.take_samples():
                self._book.add(*decision, addresses=_addresses(table))
        self._book.outcomes.tick(time.monotonic(), self._addresses, reports)

    @property
    def lost(self) -> int:
        """Number of ended requests whose receipts could not be written."""
        return 0 if self._file is None else self._file.lost

    def _read(self, rows: Records) -> Records:
        """Return ended requests with their labels, without those of unknown fleets or models and wrong requests."""
        keys = list(zip(*(rows[name].tolist() for name in ("generation", "name", "slo_class")), strict=True))
        labels = {key: self._labels(*key) for key in set(keys)}
        names, refused = np.array([labels[key] for key in keys], object), rows["flags"] & REFUSED != 0
        kept = (names[:, 0] != "") & (~refused | (rows["status"] == _SHED))
        if not kept.all():
            rows, names, refused = rows[kept], names[kept], refused[kept]
        ended, flags = np.zeros(len(rows), ENDED_REQUEST), rows["flags"]
        for name in _NUMBERS:
            ended[name] = rows[name]
        ended["ended_unix_s"] = time.time() - np.maximum(0.0, time.monotonic() - rows["ended_s"])
        ended["request_bytes"] = rows["prompt_bytes"]
        for name, bit in (("failed", FAILED), ("left", LEFT), ("streamed", STREAMED), ("generates", GENERATES)):
            ended[name] = flags & bit != 0
        ended["model"], ended["slo_class"] = names.T
        tenants, endpoints = ([text.decode(errors="replace") for text in rows[name].tolist()] for name in _TEXTS)
        ended["tenant"] = tenants
        ended["endpoint"], ended["pool"] = endpoints, [self._pools.get(endpoint, "") for endpoint in endpoints]
        for name, value in EndedRequest._field_defaults.items():
            ended[name][refused] = value
        ended["failed"][refused & (flags & OWN_LIMITS != 0)] = False  # the operator has not promised these limits
        return ended

    def _labels(self, generation: int, name: int, slo_class: int) -> tuple[str, str]:
        """Return the names of a model or adapter and of a class, or empty names if the model is unknown."""
        if generation not in self._names or name < 0:
            return "", ""
        names, classes = self._names[generation]
        return names[name], classes[slo_class] if slo_class >= 0 else ""

    def _remember(self, path: Path, fleet: RoutedFleet) -> None:
        """Note the names of a generation, also for a scraper that is started later."""
        if not self._names and path.exists():
            lines = path.read_text(encoding="utf-8").splitlines()
            self._names = {generation: (names, classes) for generation, names, classes in map(json.loads, lines)}
        if fleet.generation not in self._names:
            known = list(fleet.names), [item.name for item in fleet.classes]
            self._names[fleet.generation] = known
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps([fleet.generation, *known]) + "\n")

    def close(self) -> None:
        """Close the file."""
        if self._book is not None:
            self._book.close()
            self._book = None


def _addresses(table: ModuleTable) -> tuple[str, ...]:
    return tuple(bytes(row["text"][: row["length"]]).decode() for row in table.places)
