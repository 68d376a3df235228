"""Replays recorded routing decisions with other policies, and explains single decisions: `penstock receipts`."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import RenderableType

from penstock.api.answer import ApiAnswer, Row
from penstock.api.arguments.observed_weights import with_weights
from penstock.api.arguments.policy_names import policies_choice
from penstock.errors import UsageError
from penstock.gateway.picker.decision_receipts import DecisionReceipt, ends_cut, read_receipts, refuse_copies
from penstock.report.receipts import Explained, ReceiptsDocument, ReplayedPolicy, render_receipts
from penstock.routing.baselines.all_policies import RoutingPolicy
from penstock.routing.records import REJECTED
from penstock.routing.replay import explain, replay


@dataclass(frozen=True, kw_only=True, repr=False)
class ReceiptsAnswer(ApiAnswer):
    """Results of each policy on the recorded decisions."""

    document_type = ReceiptsDocument
    decisions: int
    replays: tuple[ReplayedPolicy, ...]
    explained: Explained | None
    cut_files: tuple[str, ...] = ()
    """Names of files whose last line is incomplete. The incomplete line is left out."""

    @property
    def good(self) -> bool:
        """Return true, because a replay has no verdict."""
        return True

    def rows(self) -> list[Row]:
        """Return one row per policy."""
        return [
            {
                "policy": one.policy.name,
                "agreed_fraction": one.agreed_fraction,
                "turned_away": one.turned_away,
                "expected_miss_fraction": one.expected_miss_fraction,
                "sent_miss_fraction": one.sent_miss_fraction,
                "engine_usd_per_1000_requests": one.engine_usd_per_1000_requests,
                "elastic_usd_per_1000_requests": one.elastic_usd_per_1000_requests,
            }
            for one in self.replays
        ]

    def render(self, columns: int) -> RenderableType:
        """Return what `receipts` prints."""
        return render_receipts(self.decisions, self.replays, self.explained, self.cut_files, columns)

    def _summary(self) -> tuple[str, Sequence[str]]:
        return f"{self.decisions:,} decisions", [
            f"{one.policy.name} misses {one.expected_miss_fraction:.2%}" for one in self.replays
        ]


def receipts(
    files: Sequence[str | Path], *, policy: str = "penstock,round-robin,least-request", explained: int | None = None
) -> ReceiptsAnswer:
    """Replay recorded decisions with other policies, as `penstock receipts` does: `receipts(["receipts.0.jsonl"])`.

    `explained` is the number of a decision, counted from 1. If `explained` is given, the answer also shows the
    predictions for every endpoint at that decision.
    """
    policies = policies_choice(policy)
    if any(one.weighs == "file" for one in policies):
        raise UsageError(
            "receipts do not contain the weights of a fleet file; use `weighted-round-robin`, which computes weights "
            "from capacity"
        )
    refuse_copies([Path(path) for path in files])
    known = [receipt for path in files for receipt in read_receipts(Path(path))]
    cut = tuple(Path(path).name for path in files if ends_cut(Path(path)))
    if not known:
        only = f" except a truncated line in {', '.join(cut)}" if cut else ""
        raise UsageError(
            f"these files contain no decision{only}; a gateway records one decision in a thousand, so "
            "serve more requests first"
        )
    if explained is not None and not 1 <= explained <= len(known):
        raise UsageError(f"there is no decision {explained}; give a number from 1 to {len(known):,}")
    return ReceiptsAnswer(
        decisions=len(known),
        replays=tuple(_replay_policy(known, one) for one in policies),
        explained=None if explained is None else _explain(known[explained - 1], explained),
        cut_files=cut,
    )


def _replay_policy(known: Sequence[DecisionReceipt], policy: RoutingPolicy) -> ReplayedPolicy:
    seen = [(receipt.sample, receipt.parameters) for receipt in known]
    found = replay(with_weights(seen, policy.name) if policy.weighs else seen, policy.pick)
    sent = Counter(
        receipt.addresses[index] for receipt, index in zip(known, found.chosen, strict=True) if index != REJECTED
    )
    served = max(1, sent.total())
    return ReplayedPolicy(
        policy=policy,
        agreed_fraction=found.agreed / len(known),
        turned_away=found.refused,
        expected_miss_fraction=found.miss_fraction,
        sent_miss_fraction=found.expected_misses / served,
        engine_usd_per_1000_requests=1000 * found.engine_usd / served,
        elastic_usd_per_1000_requests=1000 * found.elastic_usd / served,
        sent=dict(sorted(sent.items())),
    )


def _explain(receipt: DecisionReceipt, number: int) -> Explained:
    predicted = explain(receipt.sample, receipt.parameters)
    return Explained(number=number, addresses=receipt.addresses, order=receipt.order, receipt=predicted)
