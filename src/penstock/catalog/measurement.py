"""Describes public measurements: rows of serving benchmarks, each with its source."""

from dataclasses import dataclass
from datetime import date
from typing import Final, Literal

Scenario = Literal["online", "static_batch", "saturated", "disaggregated", "prefill"]
Dated = Literal["day", "up_to"]
Drafted = Literal["", "mtp", "drafter", "dspark", "dflash"]
Statistic = Literal["mean", "median"]
Overlap = Literal["", "tbo"]
Use = Literal["evidence", "queued", "held_out"]
"""Use of shipped rows. evidence: predictions are learnt from them. queued: most of their users waited, so they
show waiting times and not the time of a step. held_out: no prediction may ever be learnt from them, because predictions
are tested on them."""
QUEUED: Final = "queued"
"""Flag of a row most of whose users waited for others, so that its batch is not its concurrency."""
UNMERGED: Final = "unmerged"
"""Flag of a row whose figure was only ever in a pull request that the maintainers of the source did not accept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementSource:
    """Publisher of some measurements, and the terms of use."""

    id: str
    title: str
    url: str
    terms: str
    row_url: str | None = None
    """URL of one measurement. The placeholder `{ref}` stands for the reference of the measurement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Prefill side or decode side of a disaggregated deployment; all workers of a side have the same parallelism."""

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

    Token lengths are those actually served (InferenceX draws 80 to 100% of its nominal lengths). `tp`, `dp` and `ep`
    describe one engine: attention tensor ranks, attention data ranks, and whether whole experts are spread over all
    ranks. `output_tokens_per_s` counts only output tokens, over the whole deployment.
    """

    id: str
    source: str
    ref: str
    scenario: Scenario
    """How the load was applied. online: a closed loop of `concurrency` users on one engine. static_batch: one batch,
    run to its end. saturated: all requests are queued at once, and the batch is as large as memory allows; its size is
    not published. disaggregated: a closed loop on separate prefill and decode engines. prefill: one
    prompt at a time, and only its time to first token was measured."""
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
    tpot_statistic: Statistic | None = None
    """Statistic over requests that `tpot_s` states, such as the mean; None if the source does not name it."""
    tpot_p99_s: float | None = None
    ttft_s: float | None = None
    ttft_statistic: Statistic | None = None
    """Statistic over requests that `ttft_s` states, such as the mean; None if the source does not name it."""
    ttft_p99_s: float | None = None
    output_tokens_per_s: float | None = None
    dated: Dated = "day"
    """`up_to` if `date` is only the latest possible date: the row is a median over months that end on `date`, or comes
    from a file of that date. The measured software is then older than `date` by an unknown amount."""
    drafted: Drafted = ""
    """Draft method of speculative decoding, in which a step yields more than one token. mtp: the draft layers of the
    checkpoint. drafter: a separate draft model. dspark, dflash: drafters of these names. The checkpoint of MiniMax-M3
    has no draft layers; in InferenceX's rows a separate EAGLE-3 model drafts for it under the label `mtp`."""
    draft_tokens: int | None = None
    """Tokens drafted per step; None if the source does not state the number, or if the row has no drafts."""
    accepted_length: float | None = None
    """Mean number of tokens that a step yielded, including the token of the target model, measured in the same run."""
    overlap: Overlap = ""
    """`tbo` if two batches overlap, so that one computes while the other communicates."""
    max_running: int | None = None
    """Maximum number of requests that the server runs at once, if the row states it. Further requests wait."""
    chunk_tokens: int | None = None
    """Maximum number of prompt tokens of one step, if the row states it."""
    memory_fraction: float | None = None
    """Share of the device memory that the server may use for weights and cache, if the row states it."""
    requests: int | None = None
    """Number of requests of the run, if the row states it."""
    stack: str = ""
    """Name of software that runs on top of the engines, if there is any."""
    prefill: Side | None = None
    """Prefill side of a disaggregated deployment. The other fields of the row describe the decode side."""
    decode_workers: int = 1
    nodes: int = 1
    """The minimum number of machines that can hold the devices if the source says that the deployment spans several
    machines; otherwise 1."""
    joules_per_output_token: float | None = None
    """Energy of all devices per output token in joules, measured while the load ran."""
    twin: str = ""
    """If this row is a median over runs, the id of the dated run with the same configuration, lengths and load."""
    flag: str = ""
    """Fields of the row that are uncertain, separated by semicolons; `README.md` in their folder explains flags. For
    example, `gpu_ambiguous`: the accelerator may be another model of the named family. `gpu_unnamed`: the
    source names only the benchmark runner. `split_derived`: tp was derived from rates and times."""

    @property
    def flags(self) -> tuple[str, ...]:
        """Return the flags one by one."""
        return tuple(filter(None, self.flag.split(";")))

    @property
    def devices(self) -> int:
        """Return the number of devices of the deployment."""
        return self.decode_workers * self.tp * self.dp + (self.prefill.devices if self.prefill else 0)

    @property
    def plain(self) -> bool:
        """Return whether the row is for one engine in a closed loop or a batch, without speculative decoding.

        A median over runs is excluded if the table also has the dated run. Rows whose users mostly waited are excluded
        too.
        """
        one_engine = self.scenario in {"online", "static_batch", "saturated"} and QUEUED not in self.flag
        return one_engine and not self.drafted and not self.twin
