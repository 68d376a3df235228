"""Which requests are replayed? Slices of public traces, at another rate, with what each is promised."""

import csv
import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from penstock.workload import Slo

TRACES: Final = Path(__file__).resolve().parent.parent.parent / "shared" / "traces"
_BLOCK_TOKENS, _TOKEN_BYTES = 512, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Some requests of a public trace, at another rate, and what they are promised."""

    name: str
    file: str
    start: int
    count: int
    rate_per_s: float
    slo: Slo
    slow: float = 1.0
    """All seconds are so many times as long, arrivals, promises and engines alike: a busy machine keeps up."""


SLICES: Final = (
    Slice(
        name="Azure conversation",
        file="azure_llm_2023_conv.csv",
        start=2000,
        count=120,
        rate_per_s=6.0,
        slo=Slo(ttft_s=2.0, tpot_s=0.06),
        slow=5.0,
    ),
    Slice(
        name="Mooncake conversation",
        file="mooncake_conversation.jsonl",
        start=0,
        count=80,
        rate_per_s=0.65,
        slo=Slo(ttft_s=5.0, tpot_s=0.1),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedRequest:
    """One request of a slice."""

    arrival_s: float
    input_tokens: int
    output_tokens: int
    blocks: tuple[int, ...]
    """What every 512 tokens of the prompt are, by number."""

    def body(self, model: str) -> bytes:
        """Write it as a completion: a token is four bytes to an emulated engine."""
        text = "".join(f"{block:015x} " * (_BLOCK_TOKENS * _TOKEN_BYTES // 16) for block in self.blocks)
        told = {"prompt": text[: self.input_tokens * _TOKEN_BYTES], "model": model, "max_tokens": self.output_tokens}
        return json.dumps({**told, "stream": True, "ignore_eos": True}).encode()


def requests_of(chosen: Slice) -> list[TimedRequest]:
    """Read a slice, its arrivals spread to the rate that is asked for."""
    path, end = TRACES / chosen.file, chosen.start + chosen.count
    if path.suffix == ".csv":
        with path.open(encoding="utf-8") as file:
            rows = list(csv.reader(file))[1 + chosen.start : 1 + end]
        times = [datetime.fromisoformat(row[0][:26]).timestamp() for row in rows]
        lengths = [(int(row[1]), int(row[2])) for row in rows]
        # Nothing is said to be shared: every block is one of a kind.
        blocks = [tuple(range(1000 * n, 1000 * n + -(-given // _BLOCK_TOKENS))) for n, (given, _) in enumerate(lengths)]
    else:
        told = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()[chosen.start : end]]
        times = [entry["timestamp"] / 1000 for entry in told]
        lengths = [(entry["input_length"], entry["output_length"]) for entry in told]
        blocks = [tuple(entry["hash_ids"]) for entry in told]
    factor = len(times) / chosen.rate_per_s / (times[-1] - times[0])
    return [
        TimedRequest(
            arrival_s=round((at - times[0]) * factor, 3), input_tokens=given, output_tokens=made, blocks=shared
        )
        for at, (given, made), shared in zip(times, lengths, blocks, strict=True)
    ]
