"""Finds what gives a deployment room for the requests that are asked for: more devices, or smaller weights."""

from collections.abc import Iterator
from dataclasses import replace

from penstock.catalog.accelerator import Precision
from penstock.fleet.deployment import Deployment
from penstock.fleet.serving_engines import measured_defaults
from penstock.model.weight import FP8_CHANNEL
from penstock.performance.memory.budget import fit
from penstock.performance.memory.sharding import refusal
from penstock.performance.prediction.predict_deployment import NO_DRAFTS, Prediction, carries
from penstock.performance.prediction.running_limit import engine_limit


def changes_with_room(prediction: Prediction) -> tuple[str, ...]:
    """List the changes after which each deployment alone carries the load: `2 devices`, `--precision fp8`.

    The engine keeps its defaults. The fewest devices that run all requests at once are named, or else the fewest that
    run enough of them.
    """
    users = prediction.concurrency
    larger = [(placed, _running(prediction, placed)) for placed in _larger(prediction)]
    enough = [placed for placed, running in larger if running >= users] or [
        placed for placed, running in larger if carries(running, users)
    ]
    changes = [f"{placed.parallelism.devices} devices" for placed in enough[:1]]
    smaller = _smaller(prediction.deployment)
    if smaller is not None and carries(_running(prediction, smaller), users):
        changes.append("--precision fp8")
    return tuple(changes)


def _running(prediction: Prediction, placed: Deployment) -> float:
    """Return how many of the requests run at once; 0 if the model does not fit."""
    load = prediction.load
    memory = fit(placed, max(1, round(load.input_tokens + load.output_tokens)))
    limit = engine_limit(placed, memory, prediction.measured_engine, prediction.speculation or NO_DRAFTS)
    return limit.running(load) if memory.fits else 0.0


def _larger(prediction: Prediction) -> Iterator[Deployment]:
    """Yield deployments of more devices of one node, each with its engine's defaults."""
    asked, accelerator = prediction.deployment, prediction.deployment.accelerator
    tp = asked.parallelism.tp * 2
    while tp * asked.parallelism.dp * asked.parallelism.pp <= accelerator.node.devices:
        engine = measured_defaults(prediction.measured_engine, accelerator, tp=tp, pp=asked.parallelism.pp)
        placed = replace(asked, engine=engine, parallelism=replace(asked.parallelism, tp=tp))
        if refusal(placed) is None:
            yield placed
        tp *= 2


def _smaller(placed: Deployment) -> Deployment | None:
    """Return the deployment with fp8 weights. None if its weights are as small, or if it has no fp8 datapath."""
    widest = max((weight.format.bits for weight in placed.model.weights if weight.quantisable), default=0)
    if widest <= FP8_CHANNEL.bits or Precision.FP8 not in placed.accelerator.dense_flops_per_s:
        return None
    return replace(placed, model=placed.model.stored_as(FP8_CHANNEL))
