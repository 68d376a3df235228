"""Learns lengths from the engines' reports and writes them into the module's table, in the scraper's process."""

import asyncio
from pathlib import Path
from typing import Final

import numpy as np

from penstock.gateway.inside_envoy.module_table import CURRENT, ModuleTable, table_file
from penstock.gateway.picker.learned_lengths import LearnedLengths
from penstock.gateway.state.routed_fleet import RoutedFleet
from penstock.gateway.state.shared_tables import EndpointTables, read_row

_EVERY_S: Final = 0.2


def serves_module(folder: Path) -> bool:
    """Return whether the gateway in a folder decides inside Envoy."""
    return (folder / CURRENT).exists()


class LengthLearner:
    """Learner of bytes per token and output lengths for one generation of a fleet."""

    def __init__(self, folder: Path, fleet: RoutedFleet, tables: EndpointTables) -> None:
        self._fleet, self._tables, self._learned = fleet, tables, LearnedLengths(fleet)
        table = ModuleTable(table_file(folder, fleet.generation))
        self._names, self.endpoints = table.names, table.endpoints
        self._seen = np.zeros(len(fleet.addresses), np.uint64)
        for name, row in zip(fleet.names, self._names, strict=True):
            if name in self._learned.bytes_per_token:
                self._learned.bytes_per_token[name] = float(row["bytes_per_token"])
                self._learned.output_tokens[name] = float(row["output_tokens"])

    async def run(self) -> None:
        """Learn until the task is cancelled."""
        while True:
            self.learn()
            await asyncio.sleep(_EVERY_S)

    def learn(self) -> None:
        """Apply the reports that are new, and write the learned lengths."""
        reports, counts = self._tables
        for index in np.flatnonzero(reports["sequence"] != self._seen).tolist():
            row = read_row(reports, index)
            if row is not None:
                self._seen[index] = row["sequence"]
                self._learned.apply_report(index, row, counts["prompt_bytes"].sum(axis=0))
        for name, row in zip(self._fleet.names, self._names, strict=True):
            model = self._fleet.model_of[name]
            row["bytes_per_token"] = self._learned.bytes_per_token[model]
            row["output_tokens"] = self._learned.output_tokens[model]
