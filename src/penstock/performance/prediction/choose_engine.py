"""Selects the engine whose measurements a prediction uses: the requested engine, or the fastest measured one."""

from collections.abc import Callable

from penstock.catalog.accelerator import Accelerator
from penstock.errors import DeploymentError
from penstock.fleet.deployment import Deployment, Parallelism
from penstock.fleet.serving_engines import measured_defaults
from penstock.model import CacheDtype, ModelSpec
from penstock.performance.calibration.efficiencies import Efficiencies
from penstock.performance.memory.engine_settings_that_fit import with_room
from penstock.performance.prediction.predict_deployment import Prediction, predict
from penstock.performance.prediction.speculation import Speculation

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
    """Predict with the requested engine's efficiencies, or with every candidate engine, and return the fastest.

    If `measured_engine` is BEST, the candidates are the engines measured with this model on this accelerator. Without
    such measurements, the candidates are the engines measured on this accelerator with any model. Without measurements
    on this accelerator, the candidates are the engines measured on accelerators of the same vendor, or else vLLM. An
    engine that was measured in this setup, at this load or nearby, is preferred to an engine that was not. The fastest
    prediction has the lowest P90 of the time per output token. Each engine has its own settings and rules. An engine
    that would not start in this split is chosen only if no engine would start. Every engine has its default settings.
    Only if these leave too little memory, and published runs of exactly this setup show that other settings leave
    enough, the nearest settings that do are used.
    """
    input_tokens, output_tokens, concurrency = load
    measured = efficiencies.engines(accelerator.id) if efficiencies else ()
    if measured_engine not in {BEST, *measured} and efficiencies is not None and measured:
        raise DeploymentError(
            f"engine '{measured_engine}' was not measured on {accelerator.id}; choose one of: {', '.join(measured)}"
        )
    of_vendor = efficiencies.engines_of(accelerator.vendor) if efficiencies else ()
    of_model = efficiencies.engines(accelerator.id, model) if efficiencies else ()
    tried = (of_model or of_vendor or ("vllm",)) if measured_engine == BEST else (measured_engine,)

    def predicted(name: str) -> Prediction:
        drafts = None if speculate is None else speculate(name)
        placed = Deployment(
            model=model,
            accelerator=accelerator,
            engine=measured_defaults(name, accelerator, tp=parallelism.tp, pp=parallelism.pp),
            parallelism=parallelism,
            cache_dtype=cache_dtype,
            speculative=drafts is not None and drafts.own_layers,
        )
        answer = predicted_as(placed, name, drafts)
        if answer.memory.fits or not answer.seen.rows:
            return answer
        return predicted_as(with_room(placed, max(1, input_tokens + output_tokens), requests=concurrency), name, drafts)

    def predicted_as(placed: Deployment, name: str, drafts: Speculation | None) -> Prediction:
        return predict(
            placed,
            name,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            concurrency=concurrency,
            efficiencies=efficiencies,
            speculation=drafts,
        )

    answers = [predicted(name) for name in tried]
    if measured_engine == BEST and not any(answer.memory.fits for answer in answers):
        answers += [predicted(name) for name in measured if name not in tried]
    return min(
        answers,
        key=lambda answer: (
            not answer.memory.fits,
            answer.tier not in {"measured", "interpolated"},
            answer.tpot_s.high,
        ),
    )
