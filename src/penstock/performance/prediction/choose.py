"""Which engine's measurements speak for an accelerator? The one asked for, or the fastest that was measured."""

from collections.abc import Callable

from penstock.catalog.accelerator import Accelerator
from penstock.errors import DeploymentError
from penstock.fleet.deployment import Deployment, Parallelism
from penstock.fleet.engine import engine_defaults
from penstock.model import CacheDtype, ModelSpec
from penstock.performance.evidence.efficiencies import Efficiencies
from penstock.performance.prediction.predict import Prediction, Speculation, predict

BEST = "best"


def predict_on(
    model: ModelSpec,
    accelerator: Accelerator,
    parallelism: Parallelism,
    *,
    cache_dtype: CacheDtype | None,
    measured_engine: str,
    load: tuple[int, int, int],
    efficiencies: Efficiencies | None,
    speculate: Callable[[str], Speculation] | None = None,
) -> Prediction:
    """Predict with one engine's efficiencies, or with each measured one and keep the one that is surely fastest.

    That is the least P90: a guess has to be much faster than a measurement to be preferred.
    """
    input_tokens, output_tokens, concurrency = load
    settings = engine_defaults("sglang" if measured_engine == "sglang" else "vllm", accelerator, tp=parallelism.tp)
    drafts = None if speculate is None else speculate(measured_engine)
    placed = Deployment(
        model=model,
        accelerator=accelerator,
        engine=settings,
        parallelism=parallelism,
        cache_dtype=cache_dtype,
        speculative=drafts is not None and drafts.own_layers,
    )
    measured = efficiencies.engines(accelerator.id) if efficiencies else ()
    if measured_engine not in {BEST, *measured} and efficiencies is not None and measured:
        raise DeploymentError(
            f"{accelerator.id} was not measured with '{measured_engine}'; measured: {', '.join(measured)}"
        )
    of_vendor = efficiencies.engines_of(accelerator.vendor) if efficiencies else ()
    tried = (measured or of_vendor or ("vllm",)) if measured_engine == BEST else (measured_engine,)
    answers = [
        predict(
            placed,
            name,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            concurrency=concurrency,
            efficiencies=efficiencies,
            speculation=None if speculate is None else speculate(name),
        )
        for name in tried
    ]
    return min(answers, key=lambda answer: answer.tpot_s.high)
