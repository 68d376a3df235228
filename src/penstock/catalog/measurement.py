"""What has been measured? Public rows of serving benchmarks, each a fact with where it was published."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import ClassVar, Literal

from penstock.reading.toml import STRICT

Scenario = Literal["online", "static_batch", "saturated", "disaggregated"]
Dated = Literal["day", "up_to"]
Drafted = Literal["", "mtp"]


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
class Side:
    """One side of a disaggregated deployment: so many workers, each split in the same way."""

    workers: int
    tp: int = 1
    dp: int = 1
    ep: bool = False

    @property
    def devices(self) -> int:
        """Devices of all its workers."""
        return self.workers * self.tp * self.dp


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One published result of one deployment under one load.

    Lengths are what was really served (InferenceX draws 80 to 100% of its nominal lengths). `tp`, `dp` and `ep` are
    those of one engine: attention tensor ranks, attention data ranks, and whether experts are spread whole over all of
    them. `output_tokens_per_s` is output only, of the whole deployment.
    """

    id: str
    source: str
    ref: str
    scenario: Scenario
    """online: a closed loop of `concurrency` users on one engine. static_batch: one batch, run to its end. saturated:
    everything queued at once, the batch as large as memory allows and not stated. disaggregated: a closed loop on
    engines that prefill and engines that decode."""
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
    dated: Dated = "day"
    """up_to: a median over months that end on `date`, or a file of that date; the software is older, nobody says by
    how much."""
    drafted: Drafted = ""
    """mtp: speculative decoding with the draft layers of the checkpoint, so that a step yields more than one token;
    MiniMax-M3, whose checkpoint brings none, drafts with a separate EAGLE-3 model."""
    stack: str = ""
    """The name of what runs the engines, where it is more than the engine."""
    prefill: Side | None = None
    """The side that prefills, of a disaggregated deployment; the rest of the row is about the side that decodes."""
    decode_workers: int = 1
    nodes: int = 1
    """The fewest machines that hold the devices of a deployment said to span several."""
    joules_per_output_token: float | None = None
    """Energy of all devices, measured over the load."""
    twin: str = ""
    """The dated run of the same configuration, lengths and load, where the row is a median over runs."""
    flag: str = ""
    """What is uncertain: `gpu_ambiguous`, the part printed may be another of its family; `gpu_unnamed`, only the runner
    is known; `split_derived`, tp was worked out from rates and times."""

    @property
    def devices(self) -> int:
        """Devices of the deployment."""
        return self.decode_workers * self.tp * self.dp + (self.prefill.devices if self.prefill else 0)

    @property
    def plain(self) -> bool:
        """Whether it is a result of one engine that drafts nothing, and the only row of its run."""
        return self.scenario != "disaggregated" and not self.drafted and not self.twin
