"""How do flags become a deployment that can be simulated? The model, its split, its engine's settings and stack."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.catalog.accelerator import Accelerator
    from penstock.fleet import Deployment
    from penstock.model import ModelSpec
    from penstock.performance.evidence.efficiencies import Efficiencies
    from penstock.performance.prediction.disaggregated import ApartSplit, DisaggregatedPrediction
    from penstock.simulation.placement import Placement
    from penstock.simulation.scenario import SimulationQuestion

_TYPICAL_REQUESTS = 20_000
_TYPICAL_USERS = 64


@dataclass(frozen=True, kw_only=True)
class Placing:
    """What was typed about the model and how it is run."""

    model: str
    precision: str | None
    cache: str
    engine: str
    dp: int
    ep: bool
    max_sequences: int | None
    max_batched_tokens: int | None
    prefix_caching: bool
    mtp: bool = False
    prefill_split: str | None = None
    """Of replicas that only prefill; None is as the others."""

    @cached_property
    def spec(self) -> "ModelSpec":
        """The model, stored as asked."""
        from penstock.cli.flags.choices import model_choice

        return model_choice(self.model, self.precision)

    @cached_property
    def efficiencies(self) -> "Efficiencies":
        """What was fitted to the shipped measurements."""
        from penstock.benchmark.shipped_rows import shipped_efficiencies

        return shipped_efficiencies()

    @staticmethod
    def typical_tokens(question: "SimulationQuestion") -> tuple[int, int]:
        """Mean prompt and answer of a workload, over its beginning."""
        count, inputs, outputs = 0, 0, 0
        rate = question.rate_per_s
        sample = min(question.requests, _TYPICAL_REQUESTS)
        for block in question.workload.blocks(seed=question.seed, requests=sample, rate_per_s=rate):
            count += len(block)
            inputs += int(block.input_tokens.sum())
            outputs += int(block.output_tokens.sum())
        return max(1, round(inputs / count)), max(1, round(outputs / count))

    def place(self, part: "Accelerator", devices: int | None, tokens: tuple[int, int]) -> "Placement":
        """Choose the stack that was measured best at a middling load, and lay the deployment out on it."""
        from penstock.cli.flags.choices import cache_choice, speculation_choice, split_choice
        from penstock.performance.prediction.choose import predict_on
        from penstock.simulation.placement import place

        speculate = speculation_choice(self.spec, mtp=self.mtp, drafted=0, accepted=None)
        prediction = predict_on(
            self.spec,
            part,
            split_choice(part, devices, tp=None, pp=1, dp=self.dp, ep=self.ep),
            cache_dtype=cache_choice(self.cache),
            measured_engine=self.engine,
            load=(*tokens, _TYPICAL_USERS),
            efficiencies=self.efficiencies,
            speculate=speculate,
        )
        return place(
            self._set(prediction.deployment),
            prediction.measured_engine,
            self.efficiencies,
            typical_tokens=sum(tokens),
            prefix_caching=self.prefix_caching,
            speculation=prediction.speculation,
        )

    def _set(self, deployment: "Deployment") -> "Deployment":
        """Start its engine with what was typed."""
        settings = deployment.engine
        settings = replace(
            settings,
            max_sequences=self.max_sequences or settings.max_sequences,
            max_batched_tokens=self.max_batched_tokens or settings.max_batched_tokens,
        )
        return replace(deployment, engine=settings)

    def split_apart(
        self, part: "Accelerator", devices: int | None, replicas: tuple[int, int], kv_gbps: float | None
    ) -> "ApartSplit":
        """Split replicas that only prefill, and as many as said that only decode."""
        from penstock.cli.flags.choices import ranks_choice, split_choice
        from penstock.performance.prediction.disaggregated import ApartSplit

        after = split_choice(part, devices, tp=None, pp=1, dp=self.dp, ep=self.ep)
        return ApartSplit(
            prefill=after if self.prefill_split is None else ranks_choice(self.prefill_split),
            prefill_replicas=replicas[0],
            decode=after,
            decode_replicas=replicas[1],
            kv_bytes_per_s=None if kv_gbps is None else kv_gbps * 1e9,
        )

    def predict_apart(
        self, part: "Accelerator", split: "ApartSplit", tokens: tuple[int, int], users: int
    ) -> "DisaggregatedPrediction":
        """Predict a closed loop on the engine that was measured best."""
        from penstock.benchmark.disaggregated import shipped_apart
        from penstock.cli.flags.choices import cache_choice
        from penstock.performance.prediction.disaggregated import predict_apart_on
        from penstock.performance.step.two_pools import PoolsDemand

        return predict_apart_on(
            self.spec,
            part,
            split,
            cache_dtype=cache_choice(self.cache),
            measured_engine=self.engine,
            demand=PoolsDemand(users=users, input_tokens=tokens[0], output_tokens=tokens[1]),
            efficiencies=self.efficiencies,
            apart=shipped_apart(),
        )

    def place_apart(
        self, part: "Accelerator", split: "ApartSplit", tokens: tuple[int, int]
    ) -> "tuple[Placement, Placement]":
        """Lay out a prefill and a decode replica on the engine that was measured best at a middling load."""
        from penstock.performance.step.work import ReplicaWork
        from penstock.simulation.placement import place_on

        chosen = self.predict_apart(part, split, tokens, _TYPICAL_USERS * split.decode_replicas)
        sides = ((chosen.deployed.prefill, chosen.prefill), (chosen.deployed.decode, chosen.decode))
        ahead, after = (
            place_on(
                ReplicaWork(self._set(deployment)),
                stack,
                typical_tokens=sum(tokens),
                prefix_caching=self.prefix_caching,
            )
            for deployment, stack in sides
        )
        return ahead, after
