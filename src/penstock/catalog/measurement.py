"""Describes public measurements: rows of serving benchmarks, each with its source."""

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
    """Publisher of some rows, and the terms of use."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = STRICT

    id: str
    title: str
    url: str
    terms: str
    row_url: str | None = None
    """URL of one row, with `{ref}` as the placeholder of its reference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Prefill or decode side of a disaggregated deployment: its workers, all with the same split."""

    workers: int
    tp: int = 1
    dp: int = 1
    ep: bool = False

    @property
    def devices(self) -> int:
        """Return the devices of all its workers."""
        return self.workers * self.tp * self.dp


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Published result of one deployment under one load.

    Lengths are the lengths actually served (InferenceX draws 80 to 100% of its nominal lengths). `tp`, `dp` and `ep`
    describe one engine: attention tensor ranks, attention data ranks, and whether whole experts are spread over all
    ranks. `output_tokens_per_s` counts only output tokens, over the whole deployment.
    """

    id: str
    source: str
    ref: str
    scenario: Scenario
    """online: a closed loop of `concurrency` users on one engine. static_batch: one batch, run to its end. saturated:
    everything queued at once, with a batch as large as memory allows and not stated. disaggregated: a closed loop on
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
    """up_to: a median over months that end on `date`, or a file of that date. The software is older by an unknown
    amount."""
    drafted: Drafted = ""
    """mtp: speculative decoding with the draft layers of the checkpoint, so that a step yields more than one token.
    MiniMax-M3, whose checkpoint has none, drafts with a separate EAGLE-3 model."""
    stack: str = ""
    """Name of the software that runs the engines, if there is any besides the engine."""
    prefill: Side | None = None
    """Prefill side of a disaggregated deployment. The rest of the row describes the decode side."""
    decode_workers: int = 1
    nodes: int = 1
    """The fewest machines that can hold the devices, for a deployment that is stated to span several machines."""
    joules_per_output_token: float | None = None
    """Energy of all devices in joules, measured over the load."""
    twin: str = ""
    """Id of the dated run of the same configuration, lengths and load, if the row is a median over runs."""
    flag: str = ""
    """Uncertain fields. `gpu_ambiguous`: the accelerator can be another one of the same family as the printed one.
    `gpu_unnamed`: only the runner is known. `split_derived`: tp was derived from rates and times."""

    @property
    def devices(self) -> int:
        """Return the devices of the deployment."""
        return self.decode_workers * self.tp * self.dp + (self.prefill.devices if self.prefill else 0)

    @property
    def plain(self) -> bool:
        """Return whether the row is of one engine without drafts, and is the only row of its run."""
        return self.scenario != "disaggregated" and not self.drafted and not self.twin
