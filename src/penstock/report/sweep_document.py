"""Defines the JSON document of `predict --json` with several numbers of requests in flight."""

from typing import Annotated, Any, Literal

from typing_extensions import TypedDict

from penstock.performance.prediction.predict_deployment import Range
from penstock.report.drawing.json_document import at, build
from penstock.report.model_heading import ModelDocument
from penstock.report.predict_document import PredictDeployment
from penstock.report.sweep import per_device, speed_per_user


class SweepPoint(TypedDict):
    """One point of a curve: a deployment at one number of requests in flight."""

    tokens_per_s_per_user: Annotated[Range | None, at(lambda one: speed_per_user(one) if one.memory.fits else None)]
    tokens_per_s_per_device: Annotated[Range | None, at(lambda one: per_device(one) if one.memory.fits else None)]
    prediction: PredictDeployment


def _points(answer: Any) -> list[SweepPoint]:  # noqa: ANN401 - a SweepAnswer
    return [
        build(SweepPoint, prediction, prediction=deployment)
        for one in answer.answers
        for prediction, deployment in zip(one.predictions, one.document()["deployments"], strict=True)
    ]


class SweepDocument(TypedDict):
    """Predicted curves of throughput per device over speed per user."""

    schema: Literal["penstock.sweep/1"]
    model: ModelDocument
    weights: str
    input_tokens: int
    output_tokens: int
    concurrency: list[int]
    points: Annotated[list[SweepPoint], at(_points)]
