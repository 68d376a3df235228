"""Asks the policy the same few hundred requests through its three doors, and says where the doors disagree.

The doors are the module inside Envoy (with the fake Envoy of the unit tests around it), the picker behind ext_proc, and
the simulator. This is the only file of the folder that knows what is inside Penstock: whoever rewrites a door changes
its class here and nothing else. `python tests/contract/policy_doors.py` prints every decision and the disagreements as
JSON; `--table` prints the disagreements to read.

The two gateways see the same starts and ends of answers, which the trace has. The simulator's engines decide themselves
when answers end, so its decisions drift from theirs with the first difference.
"""

import csv
import ctypes
import heapq
import json
import math
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from penstock.api.arguments.fleet_argument import fleet_choice
from penstock.api.route import routed_fleet
from penstock.api.simulate_fleet import models_of, replica_pools
from penstock.gateway.envoy.filters import module_config
from penstock.gateway.inside_envoy.ended_ring import EndedRing
from penstock.gateway.inside_envoy.module_library import find_library
from penstock.gateway.inside_envoy.module_table import shared_tables, write_module_table
from penstock.gateway.picker.fleet_state import SharedTables
from penstock.gateway.picker.picker import EndpointChoice, Picker, Rejection
from penstock.gateway.picker.request_body import RequestHints, read_body
from penstock.gateway.state.shared_tables import COUNTS, PICKER_STATE, REPORT, shared_array
from penstock.routing.admission import retry_after_s
from penstock.routing.harm import pick
from penstock.routing.records import ENDPOINT, PARAMETERS, REQUEST
from penstock.simulation.run import simulate
from penstock.simulation.run_options import Options, Routing
from penstock.workload import Requests, SloClass
from penstock.workload.requests import Prefixes

FOLDER: Final = Path(__file__).parent / "policy"
TESTS: Final = Path(__file__).parents[1]
DOORS: Final = ("module", "ext_proc", "simulator")
_BEGIN_S: Final = 1000.0
_TURN_S: Final = 0.05
"""Seconds between two looks at a request that is held."""
_BYTES_PER_TOKEN: Final = 4
_BACKGROUND: Final = "background"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request of the trace."""

    at_s: float
    slo_class: str
    """As a route is called; `background` is like `agent`, with the header that lets gateways refuse it."""
    tenant: str
    prefix: str
    prefix_tokens: int
    input_tokens: int
    output_tokens: int
    first_s: float
    """Seconds until a gateway sees the first piece of the answer."""
    end_s: float

    @property
    def objective(self) -> str:
        return "batch" if self.slo_class == _BACKGROUND else ""

    @property
    def body(self) -> bytes:
        """A body of as many bytes as its tokens need."""
        model = "qwen3-8b" if self.slo_class == "other" else "llama-3.1-8b"
        shared = (self.prefix + " ") * (self.prefix_tokens * _BYTES_PER_TOKEN // (len(self.prefix) + 1))
        own = f"{self.at_s} " * (self.input_tokens * _BYTES_PER_TOKEN // len(f"{self.at_s} "))
        text = (shared + own[: max(0, self.input_tokens * _BYTES_PER_TOKEN - len(shared) - 120)]).strip()
        said = {"messages": [{"role": "user", "content": text}], "model": model, "stream": True}
        return json.dumps(said | {"max_tokens": self.output_tokens}).encode()


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What a door did with a request."""

    endpoint: int | None = None
    """None: refused."""
    retry_after_s: int | None = None
    waited_s: float = 0.0
    cached_tokens: int | None = None
    """Prompt tokens that it believes to be cached where it sends the request."""

    @property
    def outcome(self) -> str:
        return "refused" if self.endpoint is None else "sent"


class Gateway(Protocol):
    """A door that is told when answers begin and end. A handle stands for a request that is sent or held."""

    def ask(self, asked: Asked, now_s: float) -> tuple[Any, Decision | None]: ...

    def again(self, handle: Any, now_s: float) -> tuple[Any, Decision | None]: ...  # noqa: ANN401 - its own

    def first(self, handle: Any, now_s: float) -> None: ...  # noqa: ANN401 - its own

    def end(self, handle: Any, now_s: float) -> None: ...  # noqa: ANN401 - its own


def read_trace() -> list[Asked]:
    with (FOLDER / "trace.csv").open() as file:
        return [
            Asked(
                at_s=float(row["at_s"]),
                slo_class=row["class"],
                tenant=row["tenant"],
                prefix=row["prefix"],
                prefix_tokens=int(row["prefix_tokens"]),
                input_tokens=int(row["input_tokens"]),
                output_tokens=int(row["output_tokens"]),
                first_s=float(row["first_s"]),
                end_s=float(row["end_s"]),
            )
            for row in csv.DictReader(file)
        ]


def drive(gateway: Gateway, trace: Sequence[Asked]) -> list[Decision]:
    """Ask each request at its time; look at held ones every 50 ms, oldest first."""
    decisions: list[Decision | None] = [None] * len(trace)
    events: list[tuple[float, int, str, int, Any]] = []
    count = 0

    def plan(at_s: float, kind: str, number: int, handle: Any) -> None:  # noqa: ANN401 - the gateway's own
        nonlocal count
        count += 1
        heapq.heappush(events, (at_s, count, kind, number, handle))

    def note(number: int, handle: Any, decision: Decision | None, now_s: float) -> None:  # noqa: ANN401 - as above
        if decision is None:
            plan(now_s + _TURN_S, "again", number, handle)
            return
        decisions[number] = decision
        if decision.outcome == "sent":
            plan(now_s + trace[number].first_s, "first", number, handle)
            plan(now_s + trace[number].end_s, "end", number, handle)

    for number, asked in enumerate(trace):
        plan(_BEGIN_S + asked.at_s, "ask", number, None)
    while events:
        now_s, _, kind, number, handle = heapq.heappop(events)
        if kind in {"ask", "again"}:
            handle, said = gateway.ask(trace[number], now_s) if kind == "ask" else gateway.again(handle, now_s)
            note(number, handle, said, now_s)
        else:
            (gateway.first if kind == "first" else gateway.end)(handle, now_s)
    assert all(decisions)
    return [decision for decision in decisions if decision is not None]


class ModuleDoor:
    """The module that Envoy loads, with a fake Envoy in C around it."""

    def __init__(self, folder: Path) -> None:

        source, library = TESTS / "unit" / "gateway" / "fake_envoy.c", folder / "fake_envoy.so"
        compiler = shutil.which("cc") or "cc"
        flags = ["-std=gnu11", "-O1", "-fPIC", "-shared", "-w", "-o", str(library), str(source), "-lm", "-ldl"]
        subprocess.run([compiler, *flags], check=True)
        self._envoy = ctypes.CDLL(str(library))
        self._envoy.fake_request.restype = self._envoy.fake_last.restype = ctypes.c_void_p
        self._envoy.fake_time.argtypes = [ctypes.c_double]
        self._envoy.fake_retry_after.restype = ctypes.c_int64
        fleet = routed_fleet(FOLDER / "fleet.yaml")
        shared_array(folder / "pickers.table", PICKER_STATE, (1,))
        shared_tables(folder, fleet, 1)
        EndedRing(folder, 1)
        write_module_table(folder, fleet, 1, 10.0)
        self._addresses, self._turns = fleet.addresses, 0
        self._envoy.fake_time(_BEGIN_S)
        assert self._envoy.fake_open(module_config(str(folder), 1, str(find_library())).encode())
        self._envoy.fake_number(ctypes.c_int64(int(_BEGIN_S * 1e6)))
        places = 256
        recorded = np.dtype(
            [
                ("request", REQUEST),
                ("parameters", PARAMETERS),
                ("endpoints", ENDPOINT, (places,)),
                ("hits", "i8", (places,)),
            ],
            align=True,
        )
        raw = (ctypes.c_char * recorded.itemsize).from_address(self._envoy.fake_last())
        self._last = np.frombuffer(memoryview(raw), recorded)

    def ask(self, asked: Asked, now_s: float) -> tuple[Any, Decision | None]:
        body, destination, status = asked.body, ctypes.create_string_buffer(256), ctypes.c_int()
        size = ctypes.c_size_t(len(body))
        self._envoy.fake_time(now_s)
        # Envoy keeps names of tenants while a request is under way.
        tenant = ctypes.create_string_buffer(asked.tenant.encode())
        if asked.objective:
            self._envoy.fake_header(b"x-penstock-objective", asked.objective.encode())
        made = self._envoy.fake_request(body, size, size, tenant, destination, ctypes.byref(status))
        self._envoy.fake_header(None, None)
        handle = {"own": ctypes.c_void_p(made), "tenant": tenant, "since_s": now_s}
        return self._decided(handle, destination.value.decode(), status.value, now_s)

    def again(self, handle: Any, now_s: float) -> tuple[Any, Decision | None]:  # noqa: ANN401 - a pointer
        destination, status = ctypes.create_string_buffer(256), ctypes.c_int()
        self._turns += 1
        self._envoy.fake_time(now_s)
        self._envoy.fake_turn(handle["own"], self._turns, destination, ctypes.byref(status))
        return self._decided(handle, destination.value.decode(), status.value, now_s)

    def _decided(self, handle: Any, named: str, status: int, now_s: float) -> tuple[Any, Decision | None]:  # noqa: ANN401
        waited_s = round(now_s - handle["since_s"], 3)
        if status:
            retry_s = self._envoy.fake_retry_after(handle["own"]) or None
            self._envoy.fake_end(handle["own"], b"", 1)
            return None, Decision(retry_after_s=retry_s, waited_s=waited_s)
        if not named:
            return handle, None
        handle["first"] = named.partition(",")[0]
        place = self._addresses.index(handle["first"])
        cached = int(self._last[0]["hits"][place])
        return handle, Decision(endpoint=place, waited_s=waited_s, cached_tokens=cached)

    def first(self, handle: Any, now_s: float) -> None:  # noqa: ANN401 - a pointer
        self._envoy.fake_time(now_s)
        self._envoy.fake_answer(handle["own"], 200, b"data: {}\n\n", ctypes.c_size_t(10), False)  # noqa: FBT003 - C

    def end(self, handle: Any, now_s: float) -> None:  # noqa: ANN401 - a pointer
        self._envoy.fake_time(now_s)
        self._envoy.fake_piece(handle["own"], b"data: {}\n\n", ctypes.c_size_t(10), True)  # noqa: FBT003 - C
        self._envoy.fake_end(handle["own"], handle["first"].encode(), 1)


class PickerDoor:
    """The picker that answers ext_proc, with a clock of its own."""

    def __init__(self) -> None:

        fleet = routed_fleet(FOLDER / "fleet.yaml")
        count = len(fleet.addresses)
        tables = SharedTables(
            reports=np.zeros(count, REPORT), counts=np.zeros((1, count), COUNTS), states=np.zeros(1, PICKER_STATE)
        )
        self._now_s, self._addresses = _BEGIN_S, fleet.addresses
        self._picker = Picker(fleet, tables, 0, lambda: self._now_s)

    def ask(self, asked: Asked, now_s: float) -> tuple[Any, Decision | None]:

        handle = {"raw": asked.body, "body": read_body(asked.body), "since_s": now_s}
        handle["hints"] = RequestHints(tenant=asked.tenant, objective=asked.objective)
        return self.again(handle, now_s)

    def again(self, handle: Any, now_s: float) -> tuple[Any, Decision | None]:  # noqa: ANN401 - its own

        self._now_s, waited_s = now_s, now_s - handle["since_s"]
        said = self._picker.decide_or_hold(handle["body"], handle["raw"], handle["hints"], waited_s)
        waited_s = round(waited_s, 3)
        if isinstance(said, Rejection):
            assert said.status == 429
            return None, Decision(retry_after_s=said.retry_s, waited_s=waited_s)
        if not isinstance(said, EndpointChoice):
            return handle, None
        place = said.order[0]
        cached = int(self._picker._arrays.hits[place])  # noqa: SLF001 - what it believes
        sent = (said.ticket, self._addresses[place])
        return sent, Decision(endpoint=place, waited_s=waited_s, cached_tokens=cached)

    def first(self, handle: Any, now_s: float) -> None:  # noqa: ANN401 - its own
        """Pickers do not see first tokens."""

    def end(self, handle: Any, now_s: float) -> None:  # noqa: ANN401 - its own
        self._now_s = now_s
        self._picker.state.end(handle[0], handle[1], 200, "-", 1)


def simulated(trace: Sequence[Asked]) -> list[Decision]:
    """The decisions of the simulator's own run, and the Retry-After that it computes for clients that return."""

    fleet = fleet_choice(FOLDER / "fleet.yaml")
    # The simulator knows no headers: what they make of a request is a class of its own.
    routes = {route.workload: route for route in fleet.routes}
    routes[_BACKGROUND] = replace(routes["agent"], overload="refuse")
    names, models = list(routes), models_of(fleet)
    classes = [
        SloClass(name=name, share_fraction=1 / len(names), slo=route.slo, overload=route.overload)
        for name, route in routes.items()
    ]
    decisions: dict[int, Decision] = {}

    def noted(request: Any, endpoints: Any, hits: Any, parameters: Any) -> int:  # noqa: ANN401 - records
        chosen, asked = int(pick(request, endpoints, hits, parameters)), request[0]
        waited_s = round(float(asked["waited_s"]), 3)
        if chosen < 0:
            retry_s = math.ceil(retry_after_s(request, endpoints, hits, parameters))
            said = Decision(retry_after_s=retry_s, waited_s=waited_s)
        else:
            said = Decision(endpoint=chosen, waited_s=waited_s, cached_tokens=int(hits[chosen]))
        decisions[int(asked["number"])] = said
        return chosen

    model_of = tuple(models.index(fleet.pool(next(iter(route.weights))).model) for route in routes.values())
    routing = Routing(pick=noted, class_models=model_of)
    simulate(replica_pools(fleet), [_requests(trace, names)], classes=classes, options=Options(routing=routing))
    return [decisions[number] for number in range(len(trace))]


def _requests(trace: Sequence[Asked], names: Sequence[str]) -> Requests:

    segments = list(dict.fromkeys(asked.prefix for asked in trace if asked.prefix))
    tokens = {asked.prefix: asked.prefix_tokens for asked in trace}
    prefixes = Prefixes(
        segment_tokens=np.array([tokens[name] for name in segments], np.int32),
        path_start=np.concatenate([[0], np.cumsum([bool(asked.prefix) for asked in trace])]).astype(np.int64),
        path=np.array([segments.index(asked.prefix) for asked in trace if asked.prefix], np.int32),
        own=np.full(len(trace), -1, np.int32),
    )
    return Requests(
        arrival_s=np.array([asked.at_s for asked in trace]),
        input_tokens=np.array([asked.input_tokens for asked in trace], np.int32),
        output_tokens=np.array([asked.output_tokens for asked in trace], np.int32),
        slo_class=np.array([names.index(asked.slo_class) for asked in trace], np.uint8),
        prefixes=prefixes,
    )


def all_decisions() -> dict[str, list[Decision]]:
    """The decisions of each door, in the order of the trace."""
    trace = read_trace()
    with tempfile.TemporaryDirectory() as folder:
        module = drive(ModuleDoor(Path(folder)), trace)
    return {"module": module, "ext_proc": drive(PickerDoor(), trace), "simulator": simulated(trace)}


@dataclass(kw_only=True)
class Kind:
    """Requests in which two doors differ in one respect."""

    compared: int = 0
    differing: int = 0
    worst: float = 0.0
    """Largest difference: of two Retry-Afters their ratio, of waits and cached tokens the difference."""
    worst_request: int | None = None
    values: list[float | str | None] = field(default_factory=list)

    def compare(self, number: int, one: Any, other: Any, how_far: Callable[[Any, Any], float]) -> None:  # noqa: ANN401
        self.compared += 1
        if one == other:
            return
        self.differing += 1
        if self.worst_request is None or how_far(one, other) > self.worst:
            self.worst, self.worst_request, self.values = round(how_far(one, other), 6), number, [one, other]


def policy_disagreements(found: Mapping[str, Sequence[Decision]] | None = None) -> list[dict[str, Any]]:
    """How often each two doors differ, by kind, with the worst case.

    An endpoint and its cached tokens are compared where both send, a Retry-After where both refuse.
    """
    decisions = all_decisions() if found is None else found
    lines = []
    for one, other in (("module", "ext_proc"), ("module", "simulator"), ("ext_proc", "simulator")):
        kinds = {name: Kind() for name in ("outcome", "endpoint", "retry_after_s", "waited_s", "cached_tokens")}
        for number, (left, right) in enumerate(zip(decisions[one], decisions[other], strict=True)):
            kinds["outcome"].compare(number, left.outcome, right.outcome, lambda *_: 1.0)
            kinds["waited_s"].compare(number, left.waited_s, right.waited_s, _distance)
            if left.outcome == right.outcome == "sent":
                kinds["endpoint"].compare(number, left.endpoint, right.endpoint, lambda *_: 1.0)
                kinds["cached_tokens"].compare(number, left.cached_tokens, right.cached_tokens, _distance)
            elif left.outcome == right.outcome:
                kinds["retry_after_s"].compare(number, left.retry_after_s, right.retry_after_s, _ratio)
        lines += [{"doors": [one, other], "kind": name, **asdict(kind)} for name, kind in kinds.items()]
    return lines


def _distance(one: float, other: float) -> float:
    return abs(one - other)


def _ratio(one: float, other: float) -> float:
    return max(one, other) / min(one, other)


def columns(decisions: Sequence[Decision]) -> dict[str, list[Any]]:
    """Decisions as columns, in which one that changed is one line of a difference."""
    rows = [asdict(decision) for decision in decisions]
    return {name: [row[name] for row in rows] for name in rows[0]}


def report() -> dict[str, Any]:
    """Every decision of each door, and the disagreements."""
    found = all_decisions()
    decisions = {door: columns(found[door]) for door in DOORS}
    return {"decisions": decisions, "disagreements": policy_disagreements(found)}


def table(lines: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        f"{' / '.join(line['doors']):<22} {line['kind']:<15} {line['differing']:>4} of {line['compared']:<4}"
        + (f" worst {line['values'][0]} / {line['values'][1]} at {line['worst_request']}" if line["differing"] else "")
        for line in lines
    ]
    return "\n".join(rows)


if __name__ == "__main__":
    told = report()
    print(table(told["disagreements"]) if "--table" in sys.argv else json.dumps(told))  # noqa: T201 - a command
