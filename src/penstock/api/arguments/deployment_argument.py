"""Turns arguments into a deployment: model, split, engine and the measured stack."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property, partial

from penstock.api.arguments.choices import AskedModel, cache_choice, model_choice, ranks_choice, split_choice
from penstock.catalog.accelerator import Accelerator
from penstock.errors import UsageError
from penstock.model import CacheDtype, ModelSpec
from penstock.performance.disaggregated.disaggregated_prediction import (
    DisaggregatedPrediction,
    DisaggregatedSplit,
    predict_disaggregated_on,
)
from penstock.performance.disaggregated.steady_state import PoolsDemand
from penstock.performance.prediction.choose_engine import predict_on
from penstock.performance.prediction.multi_token_prediction import multi_token_prediction, usual_drafted
from penstock.performance.prediction.predict_deployment import Prediction, Speculation
from penstock.performance.shipped.shipped_disaggregated import shipped_phase_factors
from penstock.performance.shipped.shipped_drafts import shipped_drafts
from penstock.performance.shipped.shipped_runs import shipped_efficiencies


@dataclass(frozen=True)
class RequestedDeployment:
    """The arguments about a model and how it is deployed."""

    model: AskedModel
    _: KW_ONLY
    precision: str | None = None
    kv: str = "auto"
    engine: str = "best"
    dp: int = 1
    ep: bool = False
    mtp: bool = False
    drafted: int = 0
    accepted: float | None = None
    prefill_split: str | None = None
    """Split of prefill replicas; None uses the split of the decode replicas."""

    @cached_property
    def spec(self) -> ModelSpec:
        """The model in the requested weight format."""
        return model_choice(self.model, self.precision)

    @cached_property
    def cache_dtype(self) -> CacheDtype | None:
        """The requested KV cache type; None for the engine's default."""
        return cache_choice(self.kv)

    @property
    def measured_engine(self) -> str:
        """Name of the engine whose measurements are used."""
        return self.engine.strip().lower()

    def predict(
        self, part: Accelerator, devices: int | None, load: tuple[int, int, int], *, light: bool = False
    ) -> Prediction:
        """Predict a closed loop on the engine that was measured fastest.

        `load` is (prompt tokens, answer tokens, users).
        """
        return predict_on(
            self.spec,
            part,
            split_choice(part, devices, tp=None, pp=1, dp=self.dp, ep=self.ep),
            cache_dtype=self.cache_dtype,
            measured_engine=self.measured_engine,
            load=load,
            efficiencies=None if light else shipped_efficiencies(),
            speculate=self._speculate(part),
        )

    def disaggregated_split(
        self, part: Accelerator, devices: int | None, replicas: tuple[int, int], kv_gbps: float | None
    ) -> DisaggregatedSplit:
        """Build the split of prefill and decode replicas."""
        after = split_choice(part, devices, tp=None, pp=1, dp=self.dp, ep=self.ep)
        return DisaggregatedSplit(
            prefill=after if self.prefill_split is None else ranks_choice(self.prefill_split),
            prefill_replicas=replicas[0],
            decode=after,
            decode_replicas=replicas[1],
            kv_bytes_per_s=None if kv_gbps is None else kv_gbps * 1e9,
        )

    def predict_disaggregated_deployment(
        self, part: Accelerator, split: DisaggregatedSplit, tokens: tuple[int, int], users: int
    ) -> DisaggregatedPrediction:
        """Predict a closed loop on the engine that was measured fastest."""
        return predict_disaggregated_on(
            self.spec,
            part,
            split,
            cache_dtype=self.cache_dtype,
            measured_engine=self.measured_engine,
            demand=PoolsDemand(users=users, input_tokens=tokens[0], output_tokens=tokens[1]),
            efficiencies=shipped_efficiencies(),
            apart=shipped_phase_factors(),
        )

    def _speculate(self, part: Accelerator) -> Callable[[str], Speculation] | None:
        """Return the speculative decoding per engine; None without drafts."""
        if self.mtp:
            return partial(self._own_drafts, part)
        if not self.drafted:
            return None
        if self.accepted is None:
            raise UsageError("--drafted: say how many tokens a step yields: --accepted 2.4")
        given = Speculation(drafted_tokens=self.drafted, accepted_tokens=self.accepted)
        return lambda _: given

    def _own_drafts(self, part: Accelerator, engine: str) -> Speculation:
        drafted = self.drafted or usual_drafted(self.spec, engine, part.vendor, self.dp)
        found = multi_token_prediction(self.spec, engine, shipped_drafts(), drafted_tokens=drafted)
        return found if self.accepted is None else replace(found, accepted_tokens=self.accepted, grounds="as given")
