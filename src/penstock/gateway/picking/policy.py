"""Which machine code decides? The policy the simulator tries, compiled once and kept, so that pickers start at once."""

from collections.abc import Callable
from importlib.resources import files
from typing import Any, Final, TypeVar, cast

import numpy as np

from penstock.routing import harm, ledger
from penstock.routing.endpoint import FLIGHT, REPORT, default_parameters, new_endpoints, new_request
from penstock.simulation.loop.compiled import kept, on_disk, stamp_of

Function = TypeVar("Function", bound=Callable[..., object])
_PARTS: Final = ("compiled", "doubt", "endpoint", "harm", "ledger", "times")
_SOURCES: Final = stamp_of(files("penstock.routing").joinpath(f"{name}.py") for name in _PARTS)


def _kept(function: Function) -> Function:
    return cast("Function", kept(cast("Any", function).py_func, _SOURCES))


rank = _kept(harm.rank)
refresh = _kept(ledger.refresh)
sent = _kept(ledger.sent)
first_token = _kept(ledger.first_token)
finished = _kept(ledger.finished)
lost = _kept(ledger.lost)
asked = _kept(ledger.asked)
reported = _kept(ledger.reported)
divide = _kept(ledger.divide)


def is_compiled() -> bool:
    """Whether this version's policy was compiled with the package or on this machine."""
    entries = (rank, refresh, sent, first_token, finished, lost, asked, reported, divide)
    return all(on_disk(entry) for entry in entries)


def compile_once() -> None:
    """Make every call a picker makes, on an endpoint of its own."""
    endpoints, parameters, request = new_endpoints(1), default_parameters(), new_request()
    flights, said = np.zeros(1, FLIGHT), np.zeros(1, REPORT)
    divide(endpoints, 0, 1)
    rank(request, endpoints, np.zeros(1, np.int64), parameters, np.zeros(1, np.int64), np.zeros(1))
    refresh(endpoints, 0, 1.0, parameters)
    sent(endpoints, 0, request, 0, flights, 0, parameters)
    first_token(endpoints, flights, 0, 2.0, parameters)
    finished(endpoints, flights, 0, 1, 3.0, parameters)
    sent(endpoints, 0, request, 0, flights, 0, parameters)
    lost(endpoints, flights, 0, 4.0, parameters)
    asked(endpoints, 0, said, 0, 5.0)
    reported(endpoints, 0, said, 0, 6.0, parameters)
