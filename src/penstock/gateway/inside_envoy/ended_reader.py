"""Reads what the module says about ended requests, and gives it to those who need it, in the scraper's process."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock.gateway.inside_envoy.ended_ring import EndedRing
from penstock.gateway.inside_envoy.module_outcomes import ModuleOutcomes
from penstock.gateway.state.routed_fleet import RoutedFleet
from penstock.routing.records import Records

_EVERY_S: Final = 0.1


class EndedReader:
    """The one reader of a gateway's rings."""

    def __init__(self, folder: Path, workers: int, publish: Callable[[Records], None]) -> None:
        self._folder = folder
        self.ring = EndedRing(folder, workers)
        settings = folder / "receipts.json"
        path: Path | None = None
        if settings.exists():
            path = Path(json.loads(settings.read_text(encoding="utf-8"))["path"]).with_suffix(".0.jsonl")
        self._outcomes = ModuleOutcomes(path, publish)
        self._reports: Records | None = None

    def use(self, fleet: RoutedFleet, reports: Records) -> None:
        """Go on with a fleet that was loaded."""
        self._reports = reports
        self._outcomes.use(self._folder, fleet)

    async def run(self) -> None:
        """Read until the task is cancelled."""
        while True:
            self.read()
            await asyncio.sleep(_EVERY_S)

    def read(self) -> None:
        """Read the records that are there now."""
        if self._reports is not None:
            self._outcomes.write(self.ring.drain(), self._reports)

    @property
    def lost(self) -> int:
        """Number of ended requests that were not read in time, or whose receipts could not be written."""
        return self.ring.dropped + self._outcomes.lost

    def close(self) -> None:
        """Read the last records and close the files."""
        self.read()
        self._outcomes.close()
