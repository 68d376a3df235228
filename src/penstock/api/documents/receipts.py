"""Document of `receipts`."""

from typing import Literal

from typing_extensions import TypedDict


class ReplayedPolicyDocument(TypedDict):
    """The result of replaying decisions with a policy."""

    policy: str
    source: str
    agreed_fraction: float
    turned_away: int
    expected_miss_fraction: float
    sent_miss_fraction: float
    engine_usd_per_1000_requests: float
    elastic_usd_per_1000_requests: float
    sent: dict[str, int]


class ReceiptLineDocument(TypedDict):
    """One endpoint of a decision; figures are null if the endpoint was ruled out."""

    address: str
    ruled_out: str | None
    cached_tokens: int
    ttft_s: float | None
    tpot_s: float | None
    miss_fraction: float | None
    harm: float | None
    engine_usd: float | None
    elastic_usd: float | None


class ExplainedDocument(TypedDict):
    """One explained decision."""

    number: int
    input_tokens: int
    expected_output_tokens: int
    order: list[str]
    endpoints: list[ReceiptLineDocument]


class ReceiptsDocument(TypedDict):
    """Replayed decisions of a gateway."""

    schema: Literal["penstock.receipts/3"]
    decisions: int
    cut_files: list[str]
    policies: list[ReplayedPolicyDocument]
    explained: ExplainedDocument | None
