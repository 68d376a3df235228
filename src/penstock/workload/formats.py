"""Which trace is this? Known layouts of columns, recognised by the columns and never by the name of the file."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from penstock.workload.errors import TraceError

TimeUnit = Literal["timestamp", "ms", "s"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFormat:
    """How one kind of trace names what every trace has."""

    name: str
    arrival: str
    arrival_unit: TimeUnit
    input_tokens: str
    output_tokens: str
    hash_ids: str | None = None
    """Hashes of the prompt's blocks, each of which stands for everything up to its end."""
    hash_block_tokens: int = 0
    slo_class: str | None = None
    session: str | None = None
    prefix: str | None = None
    prefix_tokens: str | None = None
    source: str
    """What to cite where a result from such a trace is shown."""

    @property
    def required(self) -> tuple[str, str, str]:
        """Columns without which it is not this format."""
        return (self.arrival, self.input_tokens, self.output_tokens)


AZURE = TraceFormat(
    name="Azure LLM inference",
    arrival="TIMESTAMP",
    arrival_unit="timestamp",
    input_tokens="ContextTokens",
    output_tokens="GeneratedTokens",
    source="Azure LLM inference trace (2023: Splitwise, ISCA 2024; 2024: DynamoLLM, HPCA 2025), "
    "github.com/Azure/AzurePublicDataset, CC-BY 4.0",
)
MOONCAKE = TraceFormat(
    name="Mooncake",
    arrival="timestamp",
    arrival_unit="ms",
    input_tokens="input_length",
    output_tokens="output_length",
    hash_ids="hash_ids",
    hash_block_tokens=512,  # The trace's README: one id per block of 512 tokens, the last block may be shorter.
    source="Mooncake trace (FAST 2025), github.com/kvcache-ai/Mooncake, Apache-2.0",
)
BURSTGPT = TraceFormat(
    name="BurstGPT",
    arrival="Timestamp",
    arrival_unit="s",
    input_tokens="Request tokens",
    output_tokens="Response tokens",
    source="BurstGPT trace (arXiv:2401.17644), github.com/HPMLL/BurstGPT",
)
PLAIN = TraceFormat(
    name="plain",
    arrival="arrival_s",
    arrival_unit="s",
    input_tokens="input_tokens",
    output_tokens="output_tokens",
    slo_class="class",
    session="session",
    prefix="prefix",
    prefix_tokens="prefix_tokens",
    source="a trace of your own",
)
FORMATS = (AZURE, MOONCAKE, BURSTGPT, PLAIN)


def recognise(columns: Collection[str], file_name: str) -> TraceFormat:
    """Return the one format whose columns are all there."""
    for known in FORMATS:
        if set(known.required) <= set(columns):
            return known
    layouts = "; ".join(f"{known.name}: {', '.join(known.required)}" for known in FORMATS)
    shown = ", ".join(repr(column[:40]) for column in list(columns)[:6]) or "none"
    raise TraceError(f"{file_name}: the columns are {shown}; expected one of {layouts}")
