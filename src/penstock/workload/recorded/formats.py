"""Which trace is this? Known layouts of columns, recognised by the columns and never by the name of the file."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from penstock.errors import TraceError

TimeUnit = Literal["timestamp", "ms", "s"]
REQUIRED = ("arrival", "input", "output")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFormat:
    """How one kind of trace names what traces have."""

    name: str
    columns: Mapping[str, str]
    """Names in the file by what they mean: arrival, input, output; hash_ids; class, session, prefix, prefix_tokens."""
    arrival_unit: TimeUnit
    hash_block_tokens: int = 0
    """Tokens that one hash id stands for, after those of the ids before it."""
    source: str
    """What to cite where a result from such a trace is shown."""

    @property
    def required(self) -> tuple[str, ...]:
        """Columns without which it is not this format."""
        return tuple(self.columns[name] for name in REQUIRED)


AZURE = TraceFormat(
    name="Azure LLM inference",
    columns={"arrival": "TIMESTAMP", "input": "ContextTokens", "output": "GeneratedTokens"},
    arrival_unit="timestamp",
    source="Azure LLM inference trace (2023: Splitwise, ISCA 2024; 2024: DynamoLLM, HPCA 2025), "
    "github.com/Azure/AzurePublicDataset, CC-BY 4.0",
)
MOONCAKE = TraceFormat(
    name="Mooncake",
    columns={"arrival": "timestamp", "input": "input_length", "output": "output_length", "hash_ids": "hash_ids"},
    arrival_unit="ms",
    hash_block_tokens=512,  # The trace's README: one id per block of 512 tokens, the last block may be shorter.
    source="Mooncake trace (FAST 2025), github.com/kvcache-ai/Mooncake, Apache-2.0",
)
BURSTGPT = TraceFormat(
    name="BurstGPT",
    columns={"arrival": "Timestamp", "input": "Request tokens", "output": "Response tokens"},
    arrival_unit="s",
    source="BurstGPT trace (arXiv:2401.17644), github.com/HPMLL/BurstGPT",
)
PLAIN = TraceFormat(
    name="plain",
    columns={
        "arrival": "arrival_s",
        "input": "input_tokens",
        "output": "output_tokens",
        "class": "class",
        "session": "session",
        "prefix": "prefix",
        "prefix_tokens": "prefix_tokens",
    },
    arrival_unit="s",
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
