"""Reads the outcomes of requests and the meters of engines from files of receipts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from penstock.errors import UnreadableFile
from penstock.gateway.picker.decision_receipts import DecisionReceipt, decision_receipt, read_lines
from penstock.gateway.picker.outcome_receipts import VERSION

_UNKNOWN: Final = "not a line of receipts that this penstock reads; read the file with the penstock that wrote it"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedOutcome:
    """How one request ended."""

    ended_unix_s: float
    duration_s: float
    tenant: str
    model: str
    pool: str
    """Pool that served the request; empty if the request was refused."""
    endpoint: str
    status: int
    request_bytes: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    response_bytes: int | None
    """Bytes of the response; None if they were not seen, so that `output_tokens` is what the picker expected."""
    streamed: bool
    prompt_counted: bool
    """Whether the engine counted the tokens of the prompt. Otherwise they are estimated."""
    output_counted: bool
    kept: bool | None

    @property
    def sent_unix_s(self) -> float:
        """Time at which the request was sent to its endpoint."""
        return self.ended_unix_s - self.duration_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """Prompt and output tokens that each engine had counted at one time, by address."""

    file: str
    at_unix_s: float
    tokens: Mapping[str, tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTraffic:
    """Contents of files of receipts."""

    outcomes: tuple[RecordedOutcome, ...]
    meters: tuple[Meter, ...]
    decisions: tuple[DecisionReceipt, ...]


def read_traffic(paths: Iterable[Path]) -> RecordedTraffic:
    """Read files of receipts of any number of pickers and gateways."""
    outcomes, meters, decisions = list[RecordedOutcome](), list[Meter](), list[DecisionReceipt]()
    for path in paths:
        for where, fields in read_lines(path):
            if "version" not in fields:
                decisions.append(decision_receipt(fields, where))
                continue
            try:
                if fields["version"] != VERSION:
                    raise ValueError  # noqa: TRY301 - the same message as for other strange lines
                if "ended" in fields:
                    outcomes.append(_outcome(fields["ended"]))
                else:
                    meters.append(_meter(fields["meter"], path.name))
            except (ValueError, KeyError, TypeError, AttributeError):
                raise UnreadableFile(f"{where}: {_UNKNOWN}") from None
    return RecordedTraffic(outcomes=tuple(outcomes), meters=tuple(meters), decisions=tuple(decisions))


def _outcome(ended: Mapping[str, Any]) -> RecordedOutcome:
    kept, sent = ended["kept"], ended["response_bytes"]
    if kept not in {True, False, None}:
        raise ValueError
    outcome = RecordedOutcome(
        ended_unix_s=float(ended["ended_unix_s"]),
        duration_s=float(ended["duration_s"]),
        tenant=str(ended["tenant"]),
        model=str(ended["model"]),
        pool=str(ended["pool"]),
        endpoint=str(ended["endpoint"]),
        status=int(ended["status"]),
        request_bytes=int(ended["request_bytes"]),
        input_tokens=int(ended["input_tokens"]),
        cached_tokens=int(ended["cached_tokens"]),
        output_tokens=int(ended["output_tokens"]),
        response_bytes=None if sent is None else int(sent),
        streamed=bool(ended["streamed"]),
        prompt_counted=ended["prompt_from"] == "engine",
        output_counted=ended["tokens_from"] == "engine",
        kept=kept,
    )
    counts = (outcome.request_bytes, outcome.input_tokens, outcome.cached_tokens, outcome.output_tokens)
    if not (0 <= outcome.duration_s < outcome.ended_unix_s) or min(counts) < 0:
        raise ValueError
    return outcome


def _meter(meter: Mapping[str, Any], file: str) -> Meter:
    tokens = {str(address): (float(prompt), float(output)) for address, (prompt, output) in meter["tokens"].items()}
    return Meter(file=file, at_unix_s=float(meter["at_unix_s"]), tokens=tokens)
