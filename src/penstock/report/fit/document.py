"""Defines the JSON document of `fit --json`. The document has the values of the printed table, in bytes and tokens."""

from typing import Annotated, Any, Literal

from typing_extensions import TypedDict

from penstock.catalog.device_prices import DevicePrice
from penstock.fleet import Engine, Parallelism
from penstock.performance.memory.budget import CacheCapacity, DoesNotFit
from penstock.performance.memory.minimum_change import Remedy
from penstock.report.drawing.json_document import at, build
from penstock.report.model_heading import ModelDocument


class BudgetDocument(TypedDict):
    """Memory of one device in bytes, by what the memory is used for."""

    device_bytes: int
    weight_bytes_by_part: dict[str, int]
    activation_bytes: int
    runtime_bytes: int
    graph_bytes: int
    kv_bytes: int
    unused_bytes: int
    shortfall_bytes: int
    weight_bytes: int


class FitDeployment(TypedDict):
    """Whether the model fits on one accelerator, and the memory that is left."""

    accelerator: Annotated[str, at("fit.deployment.accelerator.id")]
    devices: Annotated[int, at("fit.deployment.parallelism.devices")]
    parallelism: Annotated[Parallelism, at("fit.deployment.parallelism")]
    engine: Annotated[Engine, at("fit.deployment.engine")]
    cache_dtype: Annotated[str, at("fit.deployment.chosen_cache_dtype")]
    fits: Annotated[bool, at("fit.fits")]
    certain: Annotated[bool, at("fit.certain")]
    flags: list[str]
    obstacle: Annotated[DoesNotFit | None, at("fit.obstacle")]
    remedies: list[Remedy]
    fewest_devices: int | None
    fewest_split: str | None
    budget: Annotated[BudgetDocument | None, at("fit.budget")]
    capacity: Annotated[CacheCapacity | None, at("fit.capacity")]
    tier: str
    notes: list[str]
    rent: DevicePrice | None
    rent_usd_per_kv_gib_month: float | None


def _deployments(answer: Any) -> list[FitDeployment]:  # noqa: ANN401 - a FitAnswer
    return [
        build(FitDeployment, report, rent=rent, rent_usd_per_kv_gib_month=usd)
        for report, rent, usd in zip(answer.reports, answer.rents, answer.kv_rents_usd_per_gib_month, strict=True)
    ]


class FitDocument(TypedDict):
    """Whether a model fits, and the memory left for the KV cache."""

    schema: Literal["penstock.fit/1"]
    model: ModelDocument
    context_tokens: int
    fits: Annotated[bool, at("good")]
    deployments: Annotated[list[FitDeployment], at(_deployments)]
