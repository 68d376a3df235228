"""What does `receipts` answer with?"""

from typing import Literal

from typing_extensions import TypedDict


class ReplayedPolicyDocument(TypedDict):
    """What a policy would have done."""

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
    """One endpoint of a decision; figures are null where something ruled it out."""

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
    """One decision."""

    number: int
    input_tokens: int
    expected_output_tokens: int
    order: list[str]
    endpoints: list[ReceiptLineDocument]


class ReceiptsDocument(TypedDict):
    """Decisions of a gateway, asked again."""

    schema: Literal["penstock.receipts/3"]
    decisions: int
    cut_files: list[str]
    policies: list[ReplayedPolicyDocument]
    explained: ExplainedDocument | None
