"""Defines the JSON document of `simulate --fleet --json`. The document has the run of every policy as plain values."""

from typing import Annotated, Any, Literal

from typing_extensions import TypedDict

from penstock.report.drawing.json_document import at, build
from penstock.report.simulate.document import ClassDocument, LatencyDocument, PoolDocument, WorkloadDocument
from penstock.report.simulate.terminal import e2e_of, tpot_of, ttft_of
from penstock.simulation.compare_policies import Destinations
from penstock.simulation.outcome import DeviceOutcome, ReplicaOutcome
from penstock.simulation.scenario import hours_covered


class FleetPoolDocument(TypedDict):
    """A pool of identical replicas to which the policies route requests."""

    name: str
    vendor: str
    role: str
    replicas: int
    usd_per_hour: float | None
    elastic: bool
    kv_tokens: Annotated[int, at("replica.kv_tokens")]
    most_tokens: Annotated[int, at("replica.max_tokens")]


class RoutedPoolDocument(PoolDocument):
    """The outcome of a pool of identical replicas.

    `finished` counts prompts in a prefill pool and answers in a decode pool. `usd` covers all replicas for the whole
    span; `idle_fraction` is the share of the span without work.
    """

    idle_fraction: float


class PolicyDocument(TypedDict):
    """The run of one policy.

    Tokens per second, dollars and means over time refer to the policy's own `span_s`, which ends when a client
    receives the last token. Thus no value depends on the other policies. Policies are ranked by `good_tokens`. All
    policies have the same `arrival_span_s`, so that `good_tokens` per second of arrivals ranks them alike. `requests`
    counts all arrivals: `served`, `refused` (sent nowhere), `oversized` (fit in no pool; `beyond_context` of them
    exceed every engine's context), and `lost` (replica died after the answer had begun). `held` of them were held at
    the gateway before they were served or refused. `worst_met_fraction` is relative to all arrivals. `met` and
    `good_tokens` of a replica count the answers that this replica completed. Both are 0 in a prefill pool. `shares` of
    a destination has one value per pool. The value is 0 for a decode pool, because no policy chooses among its
    replicas. `devices` lists the devices that models share.
    """

    policy: Annotated[str, at("policy.name")]
    source: Annotated[str, at("policy.source")]
    met: Annotated[bool, at("outcome.met")]
    worst_met_fraction: float
    requests: Annotated[int, at("outcome.asked")]
    served: Annotated[int, at("outcome.requests")]
    refused: Annotated[int, at("outcome.refused")]
    held: Annotated[int, at("outcome.held")]
    oversized: Annotated[int, at("outcome.oversized")]
    lost: Annotated[int, at("outcome.lost")]
    beyond_context: Annotated[int, at("outcome.beyond_context")]
    span_s: Annotated[float, at("outcome.makespan_s")]
    arrival_span_s: Annotated[float, at("outcome.arrival_span_s")]
    good_tokens: int
    goodput_tokens_per_s: Annotated[float, at("outcome.goodput_tokens_per_s")]
    output_tokens_per_s: Annotated[float, at("outcome.output_tokens_per_s")]
    usd: float | None
    usd_per_good_mtok: float | None
    ttft_s: Annotated[LatencyDocument, at(lambda run: ttft_of(run.outcome))]
    tpot_s: Annotated[LatencyDocument, at(lambda run: tpot_of(run.outcome))]
    e2e_s: Annotated[LatencyDocument, at(lambda run: e2e_of(run.outcome))]
    classes: Annotated[list[ClassDocument], at("outcome.classes")]
    pools: Annotated[list[RoutedPoolDocument], at("outcome.pools")]
    replicas: Annotated[list[ReplicaOutcome], at("outcome.replicas")]
    destinations: list[Destinations]
    devices: Annotated[list[DeviceOutcome], at("outcome.devices")]


def _workload(answer: Any) -> WorkloadDocument:  # noqa: ANN401 - a SimulateFleetAnswer
    hours = hours_covered(answer.load.workload, answer.runs[0].outcome.arrival_span_s)
    return build(WorkloadDocument, answer.load, hours_of_day=hours)


class ModelRunDocument(TypedDict):
    """Comparison of routing policies on the pools of one model."""

    model: Annotated[str, at(lambda answer: answer.fleet.pools[0].model)]
    pools: list[FleetPoolDocument]
    workload: Annotated[WorkloadDocument, at(_workload)]
    events: Annotated[list[str], at("events.lines")]
    policies: Annotated[list[PolicyDocument], at("runs")]


class SimulateFleetDocument(ModelRunDocument):
    """Comparison of routing policies on a fleet.

    `others` has the other models of a fleet with several models, which are simulated separately.
    """

    schema: Literal["penstock.simulate-fleet/5"]
    fleet: Annotated[str, at("fleet.name")]
    others: list[ModelRunDocument]
    corrected_by: Annotated[list[str], at(lambda answer: [one.source for one in answer.corrections])]
