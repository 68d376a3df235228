"""Compiles the policy that the simulator also runs, and caches the machine code so that pickers start at once."""

import math
from collections.abc import Callable
from importlib.resources import files
from typing import Any, Final, NamedTuple, TypeVar, cast

import numpy as np

from penstock.routing import endpoint_updates, harm
from penstock.routing.latency import share_of_chance, times_of
from penstock.routing.policy_compiler import native
from penstock.routing.records import FLIGHT, REPORT, Records, default_parameters, new_endpoints, new_request
from penstock.simulation.loop.compiler import cached_on_disk, on_disk, stamp_of

Function = TypeVar("Function", bound=Callable[..., object])
_PARTS: Final = ("policy_compiler", "corrections", "miss_probability", "records", "harm", "endpoint_updates", "latency")
_ROUTING_SOURCES: Final = tuple(files("penstock.routing").joinpath(f"{name}.py") for name in _PARTS)
_ROUTING_STAMP: Final = stamp_of(_ROUTING_SOURCES)
_STAMP: Final = stamp_of((*_ROUTING_SOURCES, files("penstock.gateway.picker").joinpath("compiled_policy.py")))
"""Stamp of the functions that are defined here."""


def _cached(function: Function, stamp: str = _ROUTING_STAMP) -> Function:
    return cast("Function", cached_on_disk(cast("Any", function).py_func, stamp))


@native
def _predict(request: Records, endpoints: Records, hits: Records, ttft_s: Records, tpot_s: Records) -> None:
    """Write the predicted latency of a request at each endpoint, in seconds; infinity where it does not fit."""
    q = request[0]
    chance_share = share_of_chance(q)
    for index in range(len(endpoints)):
        ttft_s[index] = tpot_s[index] = math.inf
        if harm.holds(q, endpoints[index]):
            ttft_s[index], tpot_s[index], _ = times_of(q, endpoints[index], hits[index], chance_share)


rank = _cached(harm.rank)
predict = _cached(_predict, _STAMP)
refresh = _cached(endpoint_updates.refresh)
sent = _cached(endpoint_updates.sent)
first_token = _cached(endpoint_updates.first_token)
finished = _cached(endpoint_updates.finished)
lost = _cached(endpoint_updates.lost)
begin_report = _cached(endpoint_updates.begin_report)
reported = _cached(endpoint_updates.reported)
divide = _cached(endpoint_updates.divide)


class EveryRequest(NamedTuple):
    """Entry points called for every request, without numba's type dispatch.

    The dispatch takes as long as the decision itself. Pass only arrays with the layout that `compile_once` uses: any
    other array would be read as if it had that layout.
    """

    rank: Callable[[Records, Records, Records, Records, Records, Records], int]
    sent: Callable[[Records, int, Records, int, Records, int, Records], None]
    first_token: Callable[[Records, Records, int, float, Records], None]
    finished: Callable[[Records, Records, int, int, float, Records], None]


def every_request() -> EveryRequest:
    """Return the machine code of the per-request functions. Compile it if needed."""
    compile_once()
    return EveryRequest(*(_entry_point(entry) for entry in (rank, sent, first_token, finished)))


def _entry_point(entry: object) -> Any:  # noqa: ANN401 - numba's dispatcher has no type
    (compiled,) = cast("Any", entry).overloads.values()
    return compiled.entry_point


def is_compiled() -> bool:
    """Return whether this version's policy was compiled with the package or on this machine."""
    entries = (rank, refresh, sent, first_token, finished, lost, begin_report, reported, divide, predict)
    return all(on_disk(entry) for entry in entries)


def compile_once() -> None:
    """Compile every function that a picker calls, by calling each one on a dummy endpoint."""
    endpoints, parameters, request = new_endpoints(1), default_parameters(), new_request()
    flights, report = np.zeros(1, FLIGHT), np.zeros(1, REPORT)
    divide(endpoints, 0, 1)
    rank(request, endpoints, np.zeros(1, np.int64), parameters, np.zeros(1, np.int64), np.zeros(1))
    predict(request, endpoints, np.zeros(1, np.int64), np.zeros(1), np.zeros(1))
    refresh(endpoints, 0, 1.0, parameters)
    sent(endpoints, 0, request, 0, flights, 0, parameters)
    first_token(endpoints, flights, 0, 2.0, parameters)
    finished(endpoints, flights, 0, 1, 3.0, parameters)
    sent(endpoints, 0, request, 0, flights, 0, parameters)
    lost(endpoints, flights, 0, 4.0, parameters)
    begin_report(endpoints, 0, report, 0, 5.0)
    reported(endpoints, 0, report, 0, 6.0, parameters)
