"""How would a published disaggregated run have gone here? Its closed loop through the simulator, request by request."""

from dataclasses import dataclass
from math import log

from rerun import drawn, longest_tokens

from penstock.performance.shipped.shipped_disaggregated import Guess
from penstock.performance.step.step_cost import StepCost
from penstock.simulation.replica import Replica, ReplicaPool, Transfer
from penstock.simulation.run import simulate
from penstock.simulation.run_options import Options

_BLOCK = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class DisaggregatedRerun:
    """What the simulator says of a run, as it was published: over the whole of it, its end included."""

    guess: Guess
    output_tokens_per_s: float
    tpot_s: float

    @property
    def log_rate(self) -> float:
        """Measured over simulated output tokens a second, as a logarithm."""
        return log((self.guess.run.row.output_tokens_per_s or 1.0) / self.output_tokens_per_s)

    @property
    def log_tpot(self) -> float:
        """The same of the time per output token."""
        return log((self.guess.run.row.tpot_s or 1.0) / self.tpot_s)


def rerun_disaggregated(guess: Guess) -> DisaggregatedRerun:
    """Run it again on the pools it was predicted with; a run that was served had the memory and the seats."""
    row, pools = guess.run.row, guess.pools
    users = round(row.concurrency or 1)
    blocks = users * longest_tokens(row) // _BLOCK

    def replica(cost: StepCost, batched_tokens: int) -> Replica:
        return Replica(
            cost=cost,
            kv_blocks=blocks,
            block_tokens=_BLOCK,
            max_batched_tokens=max(batched_tokens // cost.ranks, users),
            max_sequences=users,
            prefix_caching=False,
        )

    outcome = simulate(
        [
            ReplicaPool(
                name="prefill",
                replica=replica(pools.prefill, pools.batched_tokens),
                replicas=pools.prefill_workers,
                role="prefill",
                transfer=Transfer(token_s=pools.transfer_token_s, start_s=pools.transfer_start_s),
            ),
            ReplicaPool(
                name="decode",
                replica=replica(pools.decode, pools.batched_tokens),
                replicas=pools.decode_workers,
                role="decode",
            ),
        ],
        [drawn(row)],
        options=Options(users=users),
    )
    return DisaggregatedRerun(
        guess=guess,
        output_tokens_per_s=outcome.output_tokens_per_s,
        tpot_s=outcome.classes[0].tpot.quantile_s(0.5) or 0.0,
    )
