"""Reads the outcomes of requests and the meters of engines from files of receipts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from penstock.errors import UnreadableFile
from penstock.gateway.picker.decision_receipts import DecisionReceipt, decision_receipt, read_lines
from penstock.gateway.picker.outcome_receipts import VERSION
from penstock.gateway.state.request_outcome import RequestOutcome

_UNKNOWN: Final = "not a line of receipts that this penstock reads; read the file with the penstock that wrote it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """Prompt and output tokens that each engine had counted at one time, by address."""

    file: str
    at_unix_s: float
    tokens: Mapping[str, tuple[float, float]]


class ReceiptGap(NamedTuple):
    """A time in which lines were not written, and the number of requests that ended in it."""

    file: str
    from_unix_s: float
    to_unix_s: float
    lost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTraffic:
    """Contents of files of receipts."""

    outcomes: tuple[RequestOutcome, ...]
    meters: tuple[Meter, ...]
    decisions: tuple[DecisionReceipt, ...]
    gaps: tuple[ReceiptGap, ...] = ()


def read_traffic(paths: Iterable[Path]) -> RecordedTraffic:
    """Read files of receipts of any number of pickers and gateways."""
    outcomes, meters, decisions = list[RequestOutcome](), list[Meter](), list[DecisionReceipt]()
    gaps = list[ReceiptGap]()
    for path in paths:
        for where, fields in read_lines(path):
            if "version" not in fields:
                decisions.append(decision_receipt(fields, where))
                continue
            try:
                if fields["version"] != VERSION:
                    raise ValueError  # noqa: TRY301 - the same message as for other strange lines
                if "ended" in fields:
                    outcomes.append(RequestOutcome.from_json(fields["ended"]))
                elif "gap" in fields:
                    gap = fields["gap"]
                    gaps.append(
                        ReceiptGap(path.name, float(gap["from_unix_s"]), float(gap["to_unix_s"]), int(gap["lost"]))
                    )
                else:
                    meters.append(_meter(fields["meter"], path.name))
            except (ValueError, KeyError, TypeError, AttributeError):
                raise UnreadableFile(f"{where}: {_UNKNOWN}") from None
    return RecordedTraffic(outcomes=tuple(outcomes), meters=tuple(meters), decisions=tuple(decisions), gaps=tuple(gaps))


def _meter(meter: Mapping[str, Any], file: str) -> Meter:
    tokens = {str(address): (float(prompt), float(output)) for address, (prompt, output) in meter["tokens"].items()}
    return Meter(file=file, at_unix_s=float(meter["at_unix_s"]), tokens=tokens)
