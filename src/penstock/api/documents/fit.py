"""Document of `fit`."""

from typing import Literal

from typing_extensions import TypedDict

from penstock.api.documents.shared import ModelDocument
from penstock.fleet import Engine, Parallelism
from penstock.performance.memory.budget import CacheCapacity, DoesNotFit
from penstock.performance.memory.minimum import Remedy


class BudgetDocument(TypedDict):
    """Memory of one device by use, in bytes."""

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
    """The fit on one accelerator."""

    accelerator: str
    devices: int
    parallelism: Parallelism
    engine: Engine
    cache_dtype: str
    fits: bool
    certain: bool
    flags: list[str]
    with_defaults: DoesNotFit | None
    obstacle: DoesNotFit | None
    remedies: list[Remedy]
    fewest_devices: int | None
    fewest_split: str | None
    budget: BudgetDocument | None
    capacity: CacheCapacity | None
    tier: str
    notes: list[str]


class FitDocument(TypedDict):
    """Whether a model fits, and the memory left for the KV cache."""

    schema: Literal["penstock.fit/1"]
    model: ModelDocument
    context_tokens: int
    fits: bool
    deployments: list[FitDeployment]
