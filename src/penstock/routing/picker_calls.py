"""Exports a picker's functions.

All functions of a picker share one table of arrays, so a call passes one pointer and a few numbers. A gateway in Python
and a module inside Envoy call the same C functions.
"""

import math
from typing import Annotated, Any, NamedTuple, cast

import numpy as np

from penstock.compiled.interface import exported, exported_short
from penstock.compiled.tables import ArrayOf, table_of
from penstock.routing import class_balance, harm
from penstock.routing import endpoint_updates as updates
from penstock.routing.latency import share_of_chance, times_of
from penstock.routing.records import ENDPOINT, FLIGHT, PARAMETERS, REPORT, REQUEST, Records


class PickerTable(NamedTuple):
    """The arrays of one picker."""

    request: Annotated[Any, ArrayOf(REQUEST)]
    """The request to route, as an array of length one."""
    endpoints: Annotated[Any, ArrayOf(ENDPOINT)]
    hits: Annotated[Any, ArrayOf(np.int64)]
    """Cached prompt tokens of the request at each endpoint."""
    parameters: Annotated[Any, ArrayOf(PARAMETERS)]
    order: Annotated[Any, ArrayOf(np.int64)]
    """Result of `rank`: the endpoints to try, one after the other."""
    harms: Annotated[Any, ArrayOf(np.float64)]
    """Scratch space of `rank`, one number per endpoint."""
    flights: Annotated[Any, ArrayOf(FLIGHT)]
    reports: Annotated[Any, ArrayOf(REPORT)]


class LatencyTable(NamedTuple):
    """Arrays for the predicted latency of a request at every endpoint."""

    request: Annotated[Any, ArrayOf(REQUEST)]
    endpoints: Annotated[Any, ArrayOf(ENDPOINT)]
    hits: Annotated[Any, ArrayOf(np.int64)]
    ttft_s: Annotated[Any, ArrayOf(np.float64)]
    """Result: predicted time to first token at each endpoint; infinity if the request does not fit the endpoint."""
    tpot_s: Annotated[Any, ArrayOf(np.float64)]


def picker_table(**arrays: Records) -> PickerTable:
    """Return a table of the given arrays; all other arrays of the table are empty."""
    declared = table_of(cast("Any", PickerTable))
    kinds = {} if declared is None else declared.arrays
    return PickerTable(**{name: arrays.get(name, np.zeros(0, kind.dtype)) for name, kind in kinds.items()})


@exported
def predict_latency(t: LatencyTable) -> None:
    """Write the predicted latency of a request at each endpoint, in seconds; infinity if the request does not fit."""
    q = t.request[0]
    chance_share = share_of_chance(q)
    for index in range(len(t.endpoints)):
        t.ttft_s[index] = t.tpot_s[index] = math.inf
        if harm.holds(q, t.endpoints[index]):
            t.ttft_s[index], t.tpot_s[index], _ = times_of(q, t.endpoints[index], t.hits[index], chance_share)


@exported_short
def rank(t: PickerTable) -> int:
    """Fill `order` with the endpoints to try, first choice first, and return their number."""
    return harm.rank(t.request, t.endpoints, t.hits, t.parameters, t.order, t.harms)


@exported_short
def count_arrival(t: PickerTable) -> None:
    """Count the request, which has just arrived, so that each class counts alike."""
    class_balance.count_arrival(t.request, t.parameters)


@exported_short
def count_refusal(t: PickerTable) -> None:
    """Count the request as refused: it did not meet its SLO."""
    class_balance.count_outcome(t.parameters[0], class_balance.class_of(t.request[0]), False)  # noqa: FBT003 - compiled code takes no keywords


@exported_short
def refresh(t: PickerTable, endpoint: int, now_s: float) -> None:
    """Compute the derived fields of an endpoint's record after any change."""
    updates.refresh(t.endpoints, endpoint, now_s, t.parameters)


@exported_short
def sent(t: PickerTable, endpoint: int, place: int) -> None:
    """Record in `flights[place]` that the request was sent to an endpoint."""
    updates.sent(t.endpoints, endpoint, t.request, t.hits[endpoint], t.flights, place, t.parameters)


@exported_short
def sent_with(t: PickerTable, endpoint: int, place: int, hit_tokens: int) -> None:
    """Record in `flights[place]` that the request was sent to an endpoint with `hit_tokens` cached tokens."""
    updates.sent(t.endpoints, endpoint, t.request, hit_tokens, t.flights, place, t.parameters)


@exported_short
def clear_counts(t: PickerTable, endpoint: int) -> None:
    """Clear the counts of requests in flight at an endpoint."""
    updates.clear_own_counts(t.endpoints[endpoint])


@exported_short
def resume(t: PickerTable, endpoint: int, place: int) -> None:
    """Count the request in `flights[place]`, which was in flight before the fleet was reloaded, at an endpoint."""
    updates.resume(t.endpoints, endpoint, t.flights, place)


@exported_short
def first_token(t: PickerTable, place: int, now_s: float) -> None:
    """Record the first token of the request in `flights[place]`."""
    updates.first_token(t.endpoints, t.flights, place, now_s, t.parameters)


@exported_short
def finished(t: PickerTable, place: int, output_tokens: int, now_s: float) -> None:
    """Record the end of an answer of `output_tokens` tokens."""
    updates.finished(t.endpoints, t.flights, place, output_tokens, now_s, t.parameters)


@exported_short
def lost(t: PickerTable, place: int, now_s: float) -> None:
    """Record that a request will not be answered by its endpoint."""
    updates.lost(t.endpoints, t.flights, place, now_s, t.parameters)


@exported_short
def record_departure(t: PickerTable, place: int, now_s: float) -> None:
    """Record that a client closed its connection before its first token."""
    updates.record_departure(t.endpoints, t.flights, place, now_s, t.parameters)


@exported_short
def begin_report(t: PickerTable, endpoint: int, place: int, now_s: float) -> None:
    """Store the picker's own counts for an endpoint in `reports[place]`, when the picker requests a report."""
    updates.begin_report(t.endpoints, endpoint, t.reports, place, now_s)


@exported_short
def reported(t: PickerTable, endpoint: int, place: int, now_s: float) -> int:
    """Apply the report in `reports[place]`.

    Return 1 if it is time to divide the endpoints among the pickers again, else 0.
    """
    return int(updates.reported(t.endpoints, endpoint, t.reports, place, now_s, t.parameters))


@exported_short
def divide(t: PickerTable, picker: int, pickers: int) -> None:
    """Assign to one of several pickers its share of the endpoints of every pool."""
    updates.divide(t.endpoints, picker, pickers)
