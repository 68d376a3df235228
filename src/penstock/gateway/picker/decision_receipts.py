"""Writes receipts of routing decisions. A receipt holds all inputs of a decision, so that anyone can replay it."""

import base64
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from penstock.errors import UnreadableFile, UsageError
from penstock.gateway.picker.outcome_receipts import OutcomeBook, gap_line
from penstock.gateway.picker.receipt_file import ReceiptFile
from penstock.routing.records import ENDPOINT, PARAMETERS, REJECTED, REQUEST, Records
from penstock.routing.replay import PickSample

FOREIGN: Final = (
    "not a receipt of this version, or changed since; read it with the penstock that wrote it, "
    "or write new ones with `penstock route --receipts FILE`"
)
_ARRAYS: Final = {
    "request": REQUEST,
    "endpoints": ENDPOINT,
    "hits": np.dtype(np.int64),
    "parameters": PARAMETERS,
    "order": np.dtype(np.int64),
}


class ReceiptBook:
    """Writer of a file with one receipt per line. The file holds no prompt text."""

    def __init__(
        self,
        path: Path | ReceiptFile,
        every: int,
        addresses: tuple[str, ...],
        *,
        count: int = 0,
        meters: bool = False,
        publish: Callable[[Records], None] | None = None,
    ) -> None:
        self._every, self.count, self._addresses = every, count, addresses
        self.file = ReceiptFile(path, gap_line) if isinstance(path, Path) else path
        self.outcomes = OutcomeBook(self.file.write, meters=meters, publish=publish)

    def add(
        self,
        request: Records,
        endpoints: Records,
        hits: Records,
        parameters: Records,
        order: Records,
        addresses: tuple[str, ...] | None = None,
    ) -> None:
        """Count a decision, and append its receipt to the file for every `every`-th decision.

        `addresses` are given if the decision was about another fleet than the newest.
        """
        self.count += 1
        if self.count % self._every:
            return
        arrays = zip(_ARRAYS, (request, endpoints, hits, parameters, order), strict=True)
        line = {name: base64.b64encode(zlib.compress(array.tobytes(), 1)).decode() for name, array in arrays}
        self.file.write([json.dumps({"addresses": addresses or self._addresses, **line})])

    def close(self) -> None:
        """Close the file."""
        self.outcomes.close()
        self.file.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionReceipt:
    """One routing decision and its inputs."""

    addresses: tuple[str, ...]
    request: Records
    endpoints: Records
    hits: Records
    parameters: Records
    order: tuple[int, ...]

    @property
    def sample(self) -> PickSample:
        """The decision in the form that `replay` reads. The choice is the first endpoint of the order.

        If the order of endpoints is empty, the choice is REJECTED.
        """
        return PickSample(self.request, self.endpoints, self.hits, self.order[0] if self.order else REJECTED)


def read_receipts(path: Path) -> Iterator[DecisionReceipt]:
    """Yield the receipts of a file, without an incomplete last line and without lines of outcomes.

    `ends_cut` tells whether the last line is incomplete.
    """
    for where, fields in read_lines(path):
        if "version" not in fields:
            yield decision_receipt(fields, where)


def read_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each line of a file of receipts with its place, without an incomplete last line."""
    for number, line in enumerate(_lines(path), 1):
        if line.endswith("\n"):
            where = f"{path.name}, line {number}"
            try:
                fields = json.loads(line)
            except ValueError:
                fields = None
            if not isinstance(fields, dict):
                raise UnreadableFile(f"{where}: {FOREIGN}")
            yield where, fields


def ends_cut(path: Path) -> bool:
    """Return whether the last line of a file is incomplete.

    The cause can be a full disk, or a gateway that is still writing the line.
    """
    last = "\n"
    for line in _lines(path):
        last = line
    return not last.endswith("\n")


def refuse_copies(files: Sequence[Path]) -> None:
    """Raise an error if two files hold the same lines, because these would be counted twice.

    No two receipts are equal. Two files with the same first line are therefore copies.
    """
    seen: dict[str, Path] = {}
    for path in files:
        line = next(_lines(path), "")
        if line and line in seen:
            raise UsageError(
                f"{seen[line]} and {path} have the same decisions, which would count twice; name only one of them"
            )
        seen[line] = path


def _lines(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="ascii") as file:
            yield from file
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror or "cannot be read") if isinstance(error, OSError) else "not a file of receipts"
        raise UnreadableFile(
            f"{path}: {reason}; use a file of receipts, such as FILE.0.jsonl from `penstock route --receipts FILE`"
        ) from None


def decision_receipt(fields: dict[str, Any], where: str) -> DecisionReceipt:
    """Return the decision of a line of receipts. `where` is the line's place for an error message."""
    try:
        arrays = {
            name: np.frombuffer(zlib.decompress(base64.b64decode(fields[name])), dtype).copy()
            for name, dtype in _ARRAYS.items()
        }
        addresses = tuple(str(address) for address in fields["addresses"])
    except (ValueError, KeyError, TypeError, zlib.error):
        raise UnreadableFile(f"{where}: {FOREIGN}") from None
    count, order = len(addresses), tuple(int(index) for index in arrays.pop("order"))
    single = len(arrays["request"]) == len(arrays["parameters"]) == 1
    if not single or {len(arrays["endpoints"]), len(arrays["hits"])} != {count} or not set(order) <= set(range(count)):
        raise UnreadableFile(f"{where}: {FOREIGN}")
    return DecisionReceipt(addresses=addresses, order=order, **arrays)
