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
    """URL of one row. The placeholder `{ref}` stands for the row's reference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Prefill or decode side of a disaggregated deployment: its workers, all with the same split."""

    workers: int
    tp: int = 1
    dp: int = 1
    ep: bool = False

    @property
    def devices(self) -> int:
        """Return the number of devices of all workers on this side."""
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
    """How the load was applied. online: a closed loop of `concurrency` users on one engine. static_batch: one batch,
    run to its end. saturated: all requests are queued at once, and the batch is as large as memory allows. Its size is
    not stated. disaggregated: a closed loop on separate prefill and decode engines."""
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
    """`up_to` if the date is only an upper bound: the row is a median over months that end on `date`, or comes from a
    file of that date. The software is then older by an unknown amount."""
    drafted: Drafted = ""
    """`mtp` if the engine decodes speculatively with the draft layers of the checkpoint, so that a step yields more
    than one token. The checkpoint of MiniMax-M3 has no draft layers, and a separate EAGLE-3 model drafts for it."""
    stack: str = ""
    """Name of software that runs on top of the engines, if there is any."""
    prefill: Side | None = None
    """Prefill side of a disaggregated deployment. The rest of the row describes the decode side."""
    decode_workers: int = 1
    nodes: int = 1
    """Minimum number of machines that can hold the devices, for a deployment whose source says that it spans several
    machines."""
    joules_per_output_token: float | None = None
    """Energy of all devices per output token in joules, measured while the load ran."""
    twin: str = ""
    """Id of the dated run with the same configuration, lengths and load as this row, if this row is a median over
    runs."""
    flag: str = ""
    """Fields of the row that are uncertain. `gpu_ambiguous`: the accelerator may be another member of the printed
    family. `gpu_unnamed`: only the runner is known. `split_derived`: tp was derived from rates and times."""

    @property
    def devices(self) -> int:
        """Return the number of devices of the deployment."""
        return self.decode_workers * self.tp * self.dp + (self.prefill.devices if self.prefill else 0)

    @property
    def plain(self) -> bool:
        """Return whether the row measures one engine without drafts, and is not a median with a dated twin."""
        return self.scenario != "disaggregated" and not self.drafted and not self.twin
