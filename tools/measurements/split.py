"""How was an engine split? Ranks and attention-DP of the raw files, as attention tensor ranks and data ranks."""

from dataclasses import dataclass
from math import ceil
from typing import Final

from penstock.catalog.measurement import Side


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """One engine: so many ranks, experts spread over some of them, attention replicated or sharded."""

    ranks: int
    expert_ranks: int = 1
    attention_dp: bool = False

    @property
    def tp(self) -> int:
        """Attention tensor ranks."""
        return 1 if self.attention_dp else self.ranks

    @property
    def dp(self) -> int:
        """Attention data ranks."""
        return self.ranks if self.attention_dp else 1

    @property
    def ep(self) -> bool:
        """Whether experts are spread whole."""
        return self.expert_ranks > 1

    @property
    def partial(self) -> bool:
        """Whether experts are spread over some of the ranks and cut over the rest."""
        return 1 < self.expert_ranks < self.ranks

    def side(self, workers: int) -> Side:
        """Make one side of a disaggregated deployment of engines like this one."""
        return Side(workers=workers, tp=self.tp, dp=self.dp, ep=self.ep)


def inferencex_split(tp: str, ep: str, attention_dp: str) -> Split:
    """Read InferenceX's own columns; a few disaggregated rows give tp per data rank, and ep is then the ranks."""
    return Split(ranks=max(int(tp), int(ep)), expert_ranks=int(ep), attention_dp=attention_dp.lower() in {"1", "true"})


_NODE_DEVICES: Final = {"gb200": 4, "gb300": 4}
"""Devices of a machine; a tray of a rack of Grace Blackwell has four, every other machine here eight."""


def nodes_of(accelerator: str, devices: int, *, several: bool) -> int:
    """Return the fewest machines that hold a deployment said to span several."""
    return ceil(devices / _NODE_DEVICES.get(accelerator, 8)) if several else 1
