"""What has been measured? Public rows of serving benchmarks, each a fact with where it was published."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import ClassVar, Literal

from penstock.reading.toml import STRICT

Scenario = Literal["online", "static_batch", "saturated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementSource:
    """Who published some rows, and under which terms."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = STRICT

    id: str
    title: str
    url: str
    terms: str
    row_url: str | None = None
    """Address of one row, with `{ref}` where its reference goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One published result of one deployment under one load.

    Lengths are what was really served (InferenceX draws 80 to 100% of its nominal lengths). Device counts are those of
    one replica. `output_tokens_per_s` is output only, of the whole replica.
    """

    id: str
    source: str
    ref: str
    scenario: Scenario
    """online: a closed loop of `concurrency` users. static_batch: one batch, run to its end. saturated: everything
    queued at once, the batch as large as memory allows and not stated."""
    model: str
    weights: str
    accelerator: str
    engine: str
    date: date
    tp: int
    input_tokens: float
    output_tokens: float
    dp: int = 1
    ep: bool = False
    version: str = ""
    kv: str = ""
    concurrency: float | None = None
    tpot_s: float | None = None
    ttft_s: float | None = None
    output_tokens_per_s: float | None = None

    @property
    def devices(self) -> int:
        """Devices of the replica."""
        return self.tp * self.dp
