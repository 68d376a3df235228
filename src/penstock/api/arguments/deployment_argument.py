"""Turns arguments into a deployment: model, split, engine and the measured stack."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property, partial

from penstock.api.arguments.choices import cache_choice, model_choice, ranks_choice, split_choice
from penstock.api.arguments.own_corrections import efficiencies_with
from penstock.api.options.model_options import DeploymentOptions
from penstock.catalog.accelerator import Accelerator
from penstock.errors import UsageError
from penstock.fleet import Parallelism
from penstock.model import CacheDtype, ModelSpec
from penstock.performance.calibration.efficiencies import Efficiencies
from penstock.performance.disaggregated.disaggregated_prediction import (
    DisaggregatedEvidence,
    DisaggregatedPrediction,
    DisaggregatedSplit,
    predict_disaggregated_on,
)
from penstock.performance.disaggregated.steady_state import PoolsDemand
from penstock.performance.prediction.choose_engine import predict_on
from penstock.performance.prediction.measured_load import RequestedLoad
from penstock.performance.prediction.multi_token_prediction import multi_token_prediction, usual_drafted
from penstock.performance.prediction.predict_deployment import Prediction, predict
from penstock.performance.prediction.speculation import Speculation
from penstock.performance.shipped.shipped_disaggregated import measured_pools, shipped_phase_factors
from penstock.performance.shipped.shipped_drafts import shipped_drafts


@dataclass(frozen=True)
class RequestedDeployment:
    """Options that describe a model and how it is deployed."""

    options: DeploymentOptions
    _: KW_ONLY
    drafted: int = 0
    accepted: float | None = None

    @cached_property
    def spec(self) -> ModelSpec:
        """Return the model in the requested weight format."""
        return model_choice(self.options.model, self.options.precision)

    @cached_property
    def cache_dtype(self) -> CacheDtype | None:
        """Return the requested KV cache type, or None for the engine's default."""
        return cache_choice(self.options.kv)

    @property
    def measured_engine(self) -> str:
        """Return the name of the engine whose measurements are used."""
        return self.options.engine.strip().lower()

    @cached_property
    def efficiencies(self) -> Efficiencies:
        """Return the shipped evidence, corrected by own runs, which have neither drafts nor prefill pools."""
        asked = {"--drafted or --mtp": self.drafted or self.options.mtp, "--prefill": self.options.prefill}
        other = next((flags for flags, given in asked.items() if given), None)
        if other is None:
            return efficiencies_with(self.options.calibration)
        if isinstance(self.options.calibration, str):
            raise UsageError(f"--calibration: own runs were measured without {other}; leave one of the two out")
        return efficiencies_with(None)

    def _split(self, accelerator: Accelerator, devices: int | None) -> Parallelism:
        return split_choice(accelerator, devices, tp=None, pp=1, dp=self.options.dp, ep=self.options.ep)

    def predict(
        self, accelerator: Accelerator, devices: int | None, load: tuple[int, int, int], *, roofline: bool = False
    ) -> Prediction:
        """Predict a closed-loop run on the engine that was measured fastest.

        `load` is (prompt tokens, answer tokens, users).
        """
        return predict_on(
            self.spec,
            accelerator,
            self._split(accelerator, devices),
            cache_dtype=self.cache_dtype,
            measured_engine=self.measured_engine,
            load=load,
            efficiencies=None if roofline else self.efficiencies,
            speculate=self._speculate(accelerator),
        )

    def predict_again(self, predicted: Prediction, load: RequestedLoad) -> Prediction:
        """Predict a deployment that was predicted, at another load."""
        placed, speculate = predicted.deployment, self._speculate(predicted.deployment.accelerator)
        return predict(
            placed,
            predicted.measured_engine,
            input_tokens=load.input_tokens,
            output_tokens=load.output_tokens,
            concurrency=load.users,
            efficiencies=self.efficiencies,
            speculation=None if speculate is None else speculate(predicted.measured_engine),
        )

    def disaggregated_split(
        self, accelerator: Accelerator, devices: int | None, decode_replicas: int
    ) -> DisaggregatedSplit:
        """Build the split of prefill and decode replicas."""
        decode, prefill, kv_gbps = self._split(accelerator, devices), self.options.prefill_split, self.options.kv_gbps
        return DisaggregatedSplit(
            prefill=decode if prefill is None else ranks_choice(prefill),
            prefill_replicas=self.options.prefill,
            decode=decode,
            decode_replicas=decode_replicas,
            kv_bytes_per_s=None if kv_gbps is None else kv_gbps * 1e9,
        )

    def predict_disaggregated_deployment(
        self, accelerator: Accelerator, split: DisaggregatedSplit, tokens: tuple[int, int], users: int
    ) -> DisaggregatedPrediction:
        """Predict a closed-loop run with disaggregated prefill, on the engine that was measured fastest."""
        return predict_disaggregated_on(
            self.spec,
            accelerator,
            split,
            cache_dtype=self.cache_dtype,
            measured_engine=self.measured_engine,
            demand=PoolsDemand(users=users, input_tokens=tokens[0], output_tokens=tokens[1]),
            efficiencies=self.efficiencies,
            evidence=DisaggregatedEvidence(factors=shipped_phase_factors(), measured_of=measured_pools),
            speculate=self._speculate(accelerator),
        )

    def _speculate(self, accelerator: Accelerator) -> Callable[[str], Speculation] | None:
        """Return a function that maps an engine to its settings for speculative decoding.

        Return None if no drafts are requested.
        """
        if self.options.mtp:
            return partial(self._own_drafts, accelerator)
        if not self.drafted:
            return None
        if self.accepted is None:
            raise UsageError(
                "--drafted also needs the mean number of output tokens per request and step; add `--accepted 2.4`, "
                "for example"
            )
        given = Speculation(drafted_tokens=self.drafted, accepted_tokens=self.accepted)
        return lambda _: given

    def _own_drafts(self, accelerator: Accelerator, engine: str) -> Speculation:
        drafted = self.drafted or usual_drafted(self.spec, engine, accelerator.vendor, self.options.dp)
        found = multi_token_prediction(self.spec, shipped_drafts(), drafted_tokens=drafted)
        if self.accepted is None:
            return found
        return replace(found, accepted_tokens=self.accepted, expected_tokens=found.accepted_tokens, grounds="as given")
