"""The module with a fake Envoy around it: its scan, its decisions and its books."""

import ctypes
import json
import os
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from gateway_fakes import outcomes_in
from penstock.errors import UsageError
from penstock.gateway.envoy.filters import module_config
from penstock.gateway.inside_envoy import ended_ring, module_library
from penstock.gateway.inside_envoy.ended_ring import RING_RECORDS, EndedRing
from penstock.gateway.inside_envoy.module_library import find_library
from penstock.gateway.inside_envoy.module_outcomes import ModuleOutcomes
from penstock.gateway.inside_envoy.module_table import (
    ModuleTable,
    module_header,
    shared_tables,
    table_file,
    write_module_table,
)
from penstock.gateway.picker.recorded_outcomes import read_traffic
from penstock.gateway.picker.request_body import read_body
from penstock.gateway.state.access_rules import Access, SloFloor, TenantKey
from penstock.gateway.state.routed_fleet import RoutedClass, RoutedFleet
from penstock.gateway.state.shared_tables import PICKER_STATE, begin_write, end_write, shared_array
from penstock.routing import harm, picker_calls
from penstock.routing.records import ENDPOINT, PARAMETERS, REQUEST, new_endpoints

if TYPE_CHECKING:
    from penstock.gateway.state.request_outcome import RequestOutcome

SOURCE = Path(__file__).with_name("fake_envoy.c")
DECISIONS = int(os.environ.get("PENSTOCK_MODULE_DECISIONS", "400"))
BODIES = int(os.environ.get("PENSTOCK_MODULE_BODIES", "300"))
SCANS = int(os.environ.get("PENSTOCK_MODULE_SCANS", "300"))
THREADED = int(os.environ.get("PENSTOCK_MODULE_THREADED", "2000"))
ENDPOINTS, PLACES = 12, 256
RECORDED = np.dtype(
    [
        ("request", REQUEST),
        ("parameters", PARAMETERS),
        ("endpoints", ENDPOINT, (PLACES,)),
        ("hits", "i8", (PLACES,)),
        ("order", "i8", (3,)),
        ("found", "i8"),
    ],
    align=True,
)
pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
CC, GCC = shutil.which("cc") or "cc", shutil.which("gcc") or "gcc"
WARNINGS = ("-std=gnu11", "-Wall", "-Wextra", "-Werror")


@pytest.fixture(scope="module")
def envoy(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    made = tmp_path_factory.mktemp("module") / "fake_envoy.so"
    command = [CC, *WARNINGS, "-Wno-unused-function", "-O2", "-fPIC", "-shared", "-o", str(made), str(SOURCE)]
    subprocess.run([*command, "-lm", "-ldl"], check=True)
    loaded = ctypes.CDLL(str(made))
    loaded.fake_request.restype = loaded.fake_last.restype = ctypes.c_void_p
    loaded.fake_time.argtypes = [ctypes.c_double]
    loaded.fake_scan.restype = ctypes.c_int64
    return loaded


def scan(envoy: ctypes.CDLL, body: bytes, cut: int, piece: int) -> tuple[bytes, list[int], list[int]]:
    model, numbers, keys = ctypes.create_string_buffer(200), (ctypes.c_int64 * 4)(), (ctypes.c_int64 * 128)()
    sizes = (ctypes.c_size_t(value) for value in (len(body), cut, piece))
    count = envoy.fake_scan(body, *sizes, model, numbers, keys)
    return model.value, list(numbers), list(keys[:count])


def random_body(rng: np.random.Generator) -> bytes:
    texts = [
        "hello",
        'a "quoted" \\ word',
        "\n\t",
        "ünïcode 漢字",
        "{[,:]}",
        "\\\\",
        "x" * int(rng.integers(0, 5000)),
        "",
    ]
    values: dict[str, Any] = {
        "model": rng.choice(["m", "meta/llama", "größe", 'odd"name\\']),
        "messages": [{"role": "user", "content": str(rng.choice(texts))} for _ in range(rng.integers(1, 4))],
        "max_tokens": [5, 0, -3, 2.5, None, "7", 2**40, 16][rng.integers(0, 8)],
        "max_completion_tokens": [None, 9, True, 1][rng.integers(0, 4)],
        "stream": [True, False, "true", None][rng.integers(0, 4)],
        "n": [1, 2, 500, None][rng.integers(0, 4)],
        "tools": {"model": "not this", "deep": [{"max_tokens": 3}], "text": str(rng.choice(texts))},
    }
    names = [name for name in rng.permutation(list(values)) if rng.random() < 0.8]
    spaced = {"separators": (",", ":")} if rng.random() < 0.5 else {"indent": 1} if rng.random() < 0.5 else {}
    chosen = {name: values[name] for name in names}
    made = json.dumps(chosen, ensure_ascii=bool(rng.random() < 0.5), **spaced)
    return made.encode()


def test_the_scan_reads_what_a_json_parser_reads_wherever_the_body_is_cut(envoy: ctypes.CDLL) -> None:
    rng = np.random.default_rng(3)
    for _ in range(BODIES):
        body = random_body(rng)
        expected = read_body(body)
        model, (has_model, limit, stream, choices), keys = found = scan(envoy, body, len(body), len(body))
        assert (bool(has_model), model.decode()) == (expected.model is not None, expected.model or "")
        assert (limit, bool(stream)) == (expected.limit_tokens or 0, expected.stream), body
        assert min(max(choices, 1), 128) == expected.choices
        assert len(keys) <= 1 + len(body) // 1024
        for cut in rng.integers(0, len(body) + 1, 8).tolist():
            assert scan(envoy, body, cut, int(rng.integers(1, 200))) == found


def test_equal_beginnings_have_equal_keys_up_to_the_first_difference(envoy: ctypes.CDLL) -> None:
    def keys(text: str, **more: object) -> list[int]:
        body = json.dumps({**more, "messages": [{"role": "user", "content": text}], "model": "m"}).encode()
        return scan(envoy, body, 0, 777)[2]

    first, other = keys("a" * 9000), keys("a" * 5000 + "b" * 4000)
    assert len(first) == len(other) == 8
    assert [one == two for one, two in zip(first, other, strict=True)] == [True] * 4 + [False] * 4
    assert keys("a" * 9000, temperature=0.3) == first  # fields before the prompt do not matter
    assert len(keys("a" * 500_000)) == 128


@pytest.mark.skipif(shutil.which("gcc") is None, reason="AddressSanitizer comes with gcc here")
def test_the_scan_stays_within_its_bytes(tmp_path: Path) -> None:
    program = tmp_path / "fuzz"
    flags = ["-g", "-O1", "-DFUZZ", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    subprocess.run([GCC, *WARNINGS, *flags, "-o", str(program), str(SOURCE), "-lm", "-ldl"], check=True)
    done = subprocess.run([str(program), "7", str(SCANS)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout.split()[0]) > SCANS


@pytest.mark.skipif(shutil.which("gcc") is None, reason="ThreadSanitizer comes with gcc here")
def test_worker_threads_share_the_tables_without_a_race(tmp_path: Path) -> None:
    """Four workers, while this process writes reports, reloads the fleet and reads the ring."""
    program, workers, folder = tmp_path / "threads", 4, tmp_path / "tables"
    folder.mkdir()
    flags = ["-g", "-O1", "-Wno-tsan", "-Wno-unused-function", "-fsanitize=thread"]
    source = SOURCE.with_name("threaded_envoy.c")
    subprocess.run([GCC, *WARNINGS, *flags, "-o", str(program), str(source), "-lm", "-ldl", "-lpthread"], check=True)
    states, fleet = shared_array(folder / "pickers.table", PICKER_STATE, (workers,)), module_fleet()
    tables, ring = shared_tables(folder, fleet, workers), EndedRing(folder, workers)
    write_module_table(folder, fleet, workers, 10.0)
    config = module_config(str(folder), workers, str(find_library()))
    command = [str(program), str(folder), str(workers), config, "3", str(THREADED)]
    # Prefix blocks are hints: workers write them without the flag, and a lost one costs a prediction of a cache hit.
    (tmp_path / "suppressions").write_text("race:penstock_add_prefix\nrace:penstock_match_prefix\n")
    options = f"halt_on_error=1 exitcode=66 suppressions={tmp_path / 'suppressions'}"
    environment = {**os.environ, "TSAN_OPTIONS": options}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    ended, turn, rng = 0, 0, np.random.default_rng(1)
    while process.poll() is None:
        turn += 1
        for index in range(len(fleet.addresses)):
            begin_write(tables.reports, index)
            tables.reports["healthy"][index] = rng.random() < 0.95
            tables.reports["reported_s"][index] = time.monotonic()
            tables.reports["running"][index] = rng.integers(0, 8)
            end_write(tables.reports, index)
        ended += len(ring.drain())
        if turn % 10 == 2:
            before, fleet = fleet, module_fleet(fleet.generation + 1, range(turn % 3, ENDPOINTS))
            tables = shared_tables(folder, fleet, workers)
            write_module_table(folder, fleet, workers, 10.0, before)
        time.sleep(0.01)
    out, errors = process.communicate()
    assert process.returncode == 0, errors[-3000:]
    assert out.split()[0] == str(THREADED // workers * workers)
    ended += len(ring.drain())
    assert 0.5 * THREADED < ended + ring.dropped <= THREADED
    assert fleet.generation > 0
    assert sum(states["decisions"]) > 0.5 * THREADED
    table = ModuleTable(table_file(folder, fleet.generation))
    if int(table.header["generation"]) == fleet.generation:
        assert (table.endpoints["in_flight"] >= 0).all()


def test_the_header_of_the_tables_is_current() -> None:
    assert (Path(module_library.__file__).parent / "module_table.h").read_text() == module_header()


def test_the_module_is_small() -> None:
    folder = Path(module_library.__file__).parent
    lines = (folder / "envoy_module.c").read_text().splitlines()
    assert len(lines) < 900


def test_another_envoy_is_refused_in_one_line(tmp_path: Path) -> None:
    other = tmp_path / "envoy"
    other.write_text("#!/bin/sh\necho 'envoy  version: abc/1.39.2/Clean/RELEASE/BoringSSL'\n")
    other.chmod(0o755)
    with pytest.raises(UsageError, match=r"needs Envoy 1\.40\.0, and .* is abc/1\.39\.2") as error:
        module_library.check_release(str(other))
    assert "\n" not in str(error.value)


def test_a_platform_without_module_and_compiler_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(module_library, "SHIPPED", tmp_path / "none" / "shipped")
    monkeypatch.setattr(module_library, "source_digest", lambda: "0")
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(UsageError, match=r"install a C compiler \(cc\)$"):
        module_library.find_module()


def module_fleet(generation: int = 0, addresses: range = range(ENDPOINTS)) -> RoutedFleet:
    endpoints = new_endpoints(len(addresses))
    endpoints["vendor"], endpoints["pool"] = [place % 2 for place in addresses], [place % 3 for place in addresses]
    endpoints["step_s"], endpoints["prompt_token_s"], endpoints["step_tokens"] = 0.01, 1e-5, 8192
    endpoints["sequence_s"], endpoints["context_token_s"] = 1e-4, 1e-8
    endpoints["kv_tokens"] = endpoints["max_context_tokens"] = 60_000
    endpoints["max_running"] = 16
    classes = [
        RoutedClass(name="chat", model="m", input_tokens=200, output_tokens=100, ttft_s=0.5, tpot_s=0.03),
        RoutedClass(name="long", model="m", input_tokens=9000, output_tokens=300, ttft_s=3.0, tpot_s=0.05, e2e_s=20.0),
        RoutedClass(
            name="batch", model="m", input_tokens=2000, output_tokens=50, ttft_s=1.0, tpot_s=0.03, overload="refuse"
        ),
    ]
    names = tuple(f"127.0.0.1:{9000 + place}" for place in addresses)
    return RoutedFleet(
        name="test",
        generation=generation,
        addresses=names,
        pools=names,
        engines=("vllm",) * len(names),
        models=("m",),
        served=("m",) * len(names),
        classes=tuple(classes),
        endpoints=endpoints,
    )


@pytest.fixture(scope="module")
def folder(envoy: ctypes.CDLL, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tables")
    shared_array(made / "pickers.table", PICKER_STATE, (1,))
    shared_tables(made, module_fleet(), 1)
    EndedRing(made, 1)
    write_module_table(made, module_fleet(), 1, 10.0, sample_every=1)
    envoy.fake_time(100.0)
    assert envoy.fake_open(module_config(str(made), 1, str(find_library())).encode())
    return made


class Client:
    """Clients that send requests to the module, and endpoints that answer them."""

    def __init__(self, envoy: ctypes.CDLL, seed: int) -> None:
        self.envoy, self.rng, self.now_s = envoy, np.random.default_rng(seed), 100.0
        self.open: list[tuple[float, Any, str, bool]] = []
        self.statuses: dict[int, int] = {}

    def send(self) -> str:
        rng = self.rng
        shared = "s" * 1024 * int(rng.integers(0, 6)) * (1 + int(rng.integers(0, 2)))
        stream = bool(rng.random() < 0.7)
        text = shared + str(rng.integers(0, 2**40)) * int(rng.integers(1, 400))
        body = {"messages": [{"role": "user", "content": text}], "model": "m", "stream": stream}
        raw = json.dumps(body | {"max_tokens": int(rng.integers(1, 400))}).encode()
        destination, status = ctypes.create_string_buffer(256), ctypes.c_int()
        cut, tenant = ctypes.c_size_t(int(rng.integers(0, len(raw)))), str(rng.choice(["", "a", "b"])).encode()
        self.envoy.fake_time(self.now_s)
        handle = ctypes.c_void_p(
            self.envoy.fake_request(raw, ctypes.c_size_t(len(raw)), cut, tenant, destination, ctypes.byref(status))
        )
        self.statuses[status.value] = self.statuses.get(status.value, 0) + 1
        first = destination.value.decode().partition(",")[0]
        self.open.append((self.now_s + float(rng.exponential(3.0)), handle, first, stream))
        return first

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        due = sorted(item for item in self.open if item[0] <= self.now_s)
        self.open = [item for item in self.open if item[0] > self.now_s]
        for at_s, *rest in due:
            self.answer(at_s, *rest)

    def answer(self, at_s: float, handle: Any, first: str, stream: bool) -> None:  # noqa: ANN401, FBT001 - a pointer
        self.envoy.fake_time(at_s)
        piece = b"data: {}\n\n" * 20 if stream else b'{"usage": {"completion_tokens": 20}}'
        if first:
            self.envoy.fake_answer(handle, 200, piece, ctypes.c_size_t(len(piece)), True)  # noqa: FBT003 - a C function
        self.envoy.fake_end(handle, first.encode(), 1)


def _recorded_bytes(envoy: ctypes.CDLL) -> Any:  # noqa: ANN401 - an array of ctypes
    return (ctypes.c_char * RECORDED.itemsize).from_address(envoy.fake_last())


def test_module_simulator_and_source_decide_alike(envoy: ctypes.CDLL, folder: Path) -> None:
    """Each request that the module decided is decided again by the function of the simulator, and by its source."""
    client, differing, several = Client(envoy, 1), 0, set[int]()
    recorded = np.frombuffer(memoryview(_recorded_bytes(envoy)), RECORDED)  # each decision overwrites it
    for _ in range(DECISIONS):
        client.send()
        said = recorded[0].copy()
        request, parameters = said["request"].reshape(1).copy(), said["parameters"].reshape(1).copy()
        endpoints, hits = said["endpoints"][:ENDPOINTS].copy(), said["hits"][:ENDPOINTS].copy()
        table = picker_calls.picker_table(
            request=request,
            endpoints=endpoints,
            hits=hits,
            parameters=parameters,
            order=np.zeros(3, np.int64),
            harms=np.zeros(ENDPOINTS),
        )
        count = int(said["found"])
        assert picker_calls.rank(table) == count
        assert table.order[:count].tolist() == said["order"][:count].tolist()
        simulated = harm.pick(request, endpoints, hits, parameters)
        with np.errstate(all="ignore"):
            source = harm.pick.py_func(request, endpoints, hits, parameters)  # type: ignore[attr-defined]
        first = int(said["order"][0]) if count else -1
        differing += not first == simulated == source
        several.add(first)
        client.pass_time(float(client.rng.exponential(0.005)))
    assert differing == 0
    assert several >= set(range(ENDPOINTS)), "all endpoints were chosen"
    assert client.statuses[429] > 0, "some requests were refused"
    client.pass_time(1e6)
    table_now = ModuleTable(table_file(folder, 0))
    for name in ("in_flight", "prefilling", "resident_tokens", "shared_tokens", "resident_output_tokens"):
        assert not table_now.endpoints[name].any(), name


def test_receipts_hold_every_ended_request_and_every_recorded_decision(
    envoy: ctypes.CDLL, folder: Path, tmp_path: Path
) -> None:
    """Another generation of the fleet is used meanwhile, and clients name tenants."""
    seen: list[RequestOutcome] = []
    client, ring = Client(envoy, 5), EndedRing(folder, 1)
    receipts = ModuleOutcomes(tmp_path / "receipts.jsonl", lambda rows: seen.extend(outcomes_in(rows)))
    client.now_s = 1.5e6
    client.pass_time(0.0)
    ring.drain()
    (before,) = ring._heads  # noqa: SLF001 - its counters
    reports = shared_tables(folder, module_fleet(), 1).reports
    receipts.use(folder, module_fleet())
    for _ in range(200):
        client.send()
        client.pass_time(float(client.rng.exponential(0.05)))
        rows = ring.drain()
        assert set(rows["tenant"].tolist()) <= {b"", b"a", b"b"}
        receipts.write(rows, reports)
    client.pass_time(1e5)
    receipts.write(ring.drain(), reports)
    receipts.close()
    traffic = read_traffic([tmp_path / "receipts.jsonl"])
    assert len(traffic.outcomes) == 200
    assert list(traffic.outcomes) == seen
    assert ring.dropped == before["dropped"]
    served = [one for one in traffic.outcomes if one.status == 200]
    assert {one.endpoint for one in served} <= set(module_fleet().addresses)
    assert {one.tenant for one in served} == {"", "a", "b"}
    whole, streams = ([one for one in served if one.streamed is kind] for kind in (False, True))
    assert {(one.output_tokens, one.output_counted, one.response_bytes) for one in whole} == {(20, True, 36)}
    assert {(one.output_counted, one.response_bytes) for one in streams} == {(False, 200)}
    assert len(traffic.decisions) == 200
    for one in traffic.decisions:
        assert one.addresses == module_fleet().addresses
        chosen = harm.pick(one.request, one.endpoints, one.hits, one.parameters)
        assert chosen == (one.order[0] if one.order else -1)


def test_a_full_ring_drops_records_and_holds_nobody_up(envoy: ctypes.CDLL, folder: Path) -> None:
    client, ring = Client(envoy, 6), EndedRing(folder, 1)
    client.now_s = 1.7e6
    ring.drain()
    before = ring.dropped
    for _ in range(RING_RECORDS + 5):
        client.send()
        client.pass_time(100.0)
    assert ring.dropped == before + 5
    assert len(ring.drain()) == RING_RECORDS
    client.send()
    client.pass_time(100.0)
    (last,) = ring.drain()
    assert last["ended_s"] > last["sent_s"]
    assert last["flags"] & ended_ring.GENERATES


class HeldClient(Client):
    """A client of a fleet whose only class may be held."""

    turns = 0
    """Number of turns so far. In each, only one request is decided again."""

    def ask(self) -> tuple[Any, str, int]:
        raw = json.dumps({"messages": "x", "model": "m", "max_tokens": 100}).encode()
        destination, status = ctypes.create_string_buffer(256), ctypes.c_int()
        self.envoy.fake_time(self.now_s)
        size = ctypes.c_size_t(len(raw))
        handle = self.envoy.fake_request(raw, size, size, b"t", destination, ctypes.byref(status))
        return ctypes.c_void_p(handle), destination.value.decode(), status.value

    def turn(self, handle: Any, turn: int | None = None) -> tuple[int, str, int]:  # noqa: ANN401 - a pointer
        destination, status = ctypes.create_string_buffer(256), ctypes.c_int()
        self.envoy.fake_time(self.now_s)
        self.turns += 1
        turned = self.envoy.fake_turn(handle, turn or self.turns, destination, ctypes.byref(status))
        return turned, destination.value.decode(), status.value


def test_a_request_is_held_until_there_is_room_or_its_time_is_over(envoy: ctypes.CDLL, folder: Path) -> None:
    routed, client, ring = module_fleet(5), HeldClient(envoy, 7), EndedRing(folder, 1)
    routed = replace(routed, classes=tuple(replace(item, overload="hold") for item in routed.classes))
    routed.endpoints["step_s"] = 0.06  # slower than promised, so only an idle endpoint gets a request
    shared_tables(folder, routed, 1)
    write_module_table(folder, routed, 1, 10.0)
    client.now_s = 1.95e6
    client.send()
    client.pass_time(1e3)
    sent, kept = list[tuple[Any, str]](), list[tuple[Any, str]]()
    for _ in range(60):
        handle, destination, status = client.ask()
        assert status == 0
        (sent if destination else kept).append((handle, destination))
    assert sent
    assert len(kept) > 2
    ring.drain()
    client.now_s += 0.05
    assert client.turn(kept[0][0]) == (0, "", 0)
    assert client.turn(kept[1][0], 99) == (0, "", 0)
    client.now_s += 0.21  # half of the limit of 0.5 s
    assert client.turn(kept[0][0]) == (10, "", 429)
    (refused,) = ring.drain()
    assert (refused["status"], refused["flags"] & ended_ring.REFUSED) == (429, ended_ring.REFUSED)
    assert refused["waited_s"] == pytest.approx(0.26)
    for handle, destination in sent:
        client.answer(client.now_s, handle, destination.partition(",")[0], False)  # noqa: FBT003 - as above
    client.now_s -= 0.06
    assert client.turn(kept[2][0], 99) == (0, "", 0)  # in that turn an older one was still held
    turned, destination, status = client.turn(kept[1][0])
    assert (turned, status) == (11, 0)
    assert destination
    envoy.fake_end(kept[0][0], b"", 1)
    for handle, _ in kept[2:]:
        envoy.fake_end(handle, b"", 1)  # these clients leave while they are held
    ended = ring.drain()
    left = ended[ended["flags"] & ended_ring.LEFT != 0]
    assert len(left) == len(kept) - 2
    assert (left["status"] <= 0).all()
    client.now_s += 1.0
    client.answer(client.now_s, kept[1][0], destination.partition(",")[0], False)  # noqa: FBT003 - as above
    (served,) = ring.drain()
    assert served["waited_s"] == pytest.approx(0.2)
    assert served["status"] == 200
    states = shared_array(folder / "pickers.table", PICKER_STATE, (1,))
    assert states["held"][0] == len(kept)


USAGE = b'"usage": {"prompt_tokens": 9, "total_tokens": 29, "completion_tokens": 20}'
COUNTED = {
    "at the end": b'{"choices": [], ' + USAGE + b"}",
    "before long prompt logprobs": b'{"choices": [], '
    + USAGE
    + b', "prompt_logprobs": ['
    + b"null, " * 5000
    + b"null]}",
    "in the middle of a stream": b'data: {"usage": null}\n\ndata: {' + USAGE + b'}\n\ndata: {"usage": null}\n\n',
    "not in the text of an answer": b'{"text": "\\"usage\\": {\\"completion_tokens\\": 7}", ' + USAGE + b"}",
}


@pytest.mark.parametrize("answer", COUNTED.values(), ids=COUNTED)
def test_the_engine_s_counts_are_found_wherever_they_are(envoy: ctypes.CDLL, folder: Path, answer: bytes) -> None:
    ring, client = EndedRing(folder, 1), Client(envoy, 8)
    client.now_s = 2.2e6
    first = client.send()
    ring.drain()
    ((_, handle, *_),) = client.open
    envoy.fake_answer(handle, 200, answer, ctypes.c_size_t(len(answer)), True)  # noqa: FBT003 - a C function
    envoy.fake_end(handle, first.encode(), 1)
    (one,) = ring.drain()
    assert (one["counted_prompt"], one["counted_output"]) == (9, 20)


def test_a_model_that_no_endpoint_has_excludes_no_endpoint(envoy: ctypes.CDLL, folder: Path) -> None:
    client, routed = Client(envoy, 9), module_fleet(6)
    shared_tables(folder, routed, 1)
    write_module_table(folder, routed, 1, 10.0)
    client.now_s = 2.4e6
    for _ in range(20):
        client.send()
        ((_, handle, first, _),) = client.open
        envoy.fake_answer(handle, 404, b"{}", ctypes.c_size_t(2), True)  # noqa: FBT003 - a C function
        envoy.fake_end(handle, first.encode(), 3)
        client.open.clear()
        client.now_s += 0.1
    table = ModuleTable(table_file(folder, 6))
    assert table.endpoints["accepts"].all()


def test_the_first_event_of_a_stored_response_is_not_its_first_token(envoy: ctypes.CDLL, folder: Path) -> None:
    ring, client = EndedRing(folder, 1), Client(envoy, 10)
    client.now_s, seen = 2.6e6, {}
    for path in (b"/v1/responses", b"/v1/chat/completions"):
        envoy.fake_set(path, ctypes.c_uint64(0))
        for _ in range(8):
            client.send()
            client.pass_time(1e3)
        rows = ring.drain()
        seen[path] = {bool(row["first_s"]) for row in rows if row["flags"] & ended_ring.STREAMED}
        assert (rows["flags"] & ended_ring.GENERATES != 0).all()
    assert seen == {b"/v1/responses": {False}, b"/v1/chat/completions": {True}}


@pytest.mark.parametrize("flag", [14, 28], ids=["connection closed", "HTTP/2 stream reset"])
def test_a_client_that_leaves_is_neither_a_failure_nor_unnoticed(envoy: ctypes.CDLL, folder: Path, flag: int) -> None:
    ring, client = EndedRing(folder, 1), Client(envoy, 11 + flag)
    client.now_s = 2.7e6 + flag * 1e4
    client.send()
    ring.drain()
    ((_, handle, first, _),) = client.open
    envoy.fake_set(b"/v1/chat/completions", ctypes.c_uint64(1 << flag))
    envoy.fake_end(handle, first.encode(), 1)
    envoy.fake_set(b"/v1/chat/completions", ctypes.c_uint64(0))
    (one,) = ring.drain()
    assert one["flags"] & ended_ring.LEFT
    assert not one["flags"] & ended_ring.FAILED


RESERVED = (
    "x-gateway-destination-endpoint",
    "x-gateway-destination-endpoint-subset",
    "x-gateway-destination-endpoint-served",
    "x-penstock-ticket",
    "x-penstock-picker",
    "x-penstock-model",
    "x-penstock-streamed",
)
HEADERS = {
    "reserved headers are removed, each time they are there": (
        [(name, "10.1.2.3:80") for name in (*RESERVED, *RESERVED)] + [("x-request-id", "1")],
        {"left": 1},
    ),
    "limits": ([("x-slo-ttft-ms", "250"), ("x-slo-tpot-ms", "12.5")], {"ttft_s": 0.25, "tpot_s": 0.0125}),
    "the first name counts": ([("x-slo-ttft-ms", "9"), ("x-llm-d-slo-ttft-ms", "750")], {"ttft_s": 0.75}),
    "nonsense is no limit": (
        [("x-slo-ttft-ms", "-3"), ("x-slo-tpot-ms", "12 ms" * 30)],
        {"ttft_s": 0.5, "tpot_s": 0.03},
    ),
    "an objective": ([("x-penstock-objective", "Critical")], {"weight": 4.0, "sheddable": 0}),
    "a sheddable objective": ([("x-gateway-inference-objective", "batch")], {"weight": 1.0, "sheddable": 1}),
    "part of an objective is none": ([("x-penstock-objective", "high-ish")], {"weight": 1.0, "sheddable": 0}),
}


@pytest.mark.parametrize(("headers", "expected"), HEADERS.values(), ids=HEADERS)
def test_headers_of_a_request_are_read_or_removed(
    envoy: ctypes.CDLL, folder: Path, headers: list[tuple[str, str]], expected: dict[str, float]
) -> None:
    client = Client(envoy, 21)
    client.now_s = 2.9e6
    for name, value in headers:
        envoy.fake_header(name.encode(), value.encode())
    try:
        body, destination, status = (
            b'{"model": "m", "max_tokens": 100}',
            ctypes.create_string_buffer(256),
            ctypes.c_int(),
        )
        envoy.fake_time(ctypes.c_double(client.now_s))
        size = ctypes.c_size_t(len(body))
        handle = ctypes.c_void_p(envoy.fake_request(body, size, size, b"", destination, ctypes.byref(status)))
        seen = {"left": envoy.fake_headers_left()}
    finally:
        envoy.fake_header(None, None)
    request = np.frombuffer(_recorded_bytes(envoy), RECORDED)[0]["request"]
    seen |= {name: request[name] for name in expected if name != "left"}
    envoy.fake_end(handle, destination.value.partition(b",")[0], 1)
    EndedRing(folder, 1).drain()
    assert {name: seen[name] for name in expected} == pytest.approx(expected)


@pytest.mark.usefixtures("folder")
def test_too_many_headers_are_refused(envoy: ctypes.CDLL) -> None:
    """Attack: beyond 128 headers, none of the reserved ones was removed."""
    for number in range(150):
        envoy.fake_header(f"x-more-{number}".encode(), b"1")
    client = Client(envoy, 22)
    client.now_s = 2.95e6
    try:
        assert client.send() == ""
    finally:
        envoy.fake_header(None, None)
    assert client.statuses == {431: 1}
    envoy.fake_end(client.open[0][1], b"", 1)


CORRUPT = {
    "endpoints": 2**40,
    "tenants": 1,
    "prefix_words": 0,
    "classes": 2**30,
    "at_endpoints": -64,
    "at_places": 2**50,
    "at_samples": 3,
    "total_bytes": 2**45,
    "sample_every": -1,
}


@pytest.mark.parametrize("name", CORRUPT)
def test_a_corrupt_table_is_not_adopted(
    envoy: ctypes.CDLL, folder: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    generation = 1000 + list(CORRUPT).index(name)
    client, ring = Client(envoy, generation), EndedRing(folder, 1)
    client.now_s = 3.5e6 + 100.0 * generation
    before = module_fleet(generation + 100)
    shared_tables(folder, before, 1)
    write_module_table(folder, before, 1, 10.0)
    client.send()
    wrong = module_fleet(generation)
    shared_tables(folder, wrong, 1)
    write_module_table(folder, wrong, 1, 10.0)
    ModuleTable(table_file(folder, generation)).header[name] = CORRUPT[name]
    for _ in range(3):
        client.pass_time(10.0)
        client.send()
    client.pass_time(1e3)
    assert set(ring.drain()["generation"].tolist()) == {before.generation}
    assert capfd.readouterr().err.count("its table cannot be read") == 1


def test_too_many_addresses_are_told_once(envoy: ctypes.CDLL, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Attack: after 16,384 addresses no fleet was adopted, and its table was mapped 500 times a second."""
    client, ring = Client(envoy, 31), EndedRing(folder, 1)
    client.now_s, last = 4.5e6, 0
    for turn in range(9):
        routed = module_fleet(3000 + turn, range(10_000 + 2000 * turn, 12_000 + 2000 * turn))
        shared_tables(folder, routed, 1)
        write_module_table(folder, routed, 1, 10.0)
        for _ in range(3):
            client.send()
            client.pass_time(100.0)
        last = int(ring.drain()["generation"].max())
    assert 3000 < last < 3008
    assert capfd.readouterr().err.count("too many addresses") == 9 - (last - 3000) - 1
    shared_tables(folder, module_fleet(4000), 1)
    write_module_table(folder, module_fleet(4000), 1, 10.0)


@pytest.mark.parametrize(
    ("tenant", "asked_ms", "expected"),
    [(b"a", b"50", (0.2, 4.0)), (b"b", b"50", (0.2, 1.0)), (b"a", b"300", (0.3, 4.0))],
)
def test_floors_and_critical_tenants_are_kept(
    envoy: ctypes.CDLL, folder: Path, tenant: bytes, asked_ms: bytes, expected: tuple[float, float]
) -> None:
    floors = {item.name: SloFloor(ttft_s=0.2) for item in module_fleet().classes}
    keys = (TenantKey(tenant="a", key="k" * 16, critical=True), TenantKey(tenant="b", key="l" * 16))
    generation = 10 + int(asked_ms) + 2 * tenant[0]
    routed = module_fleet(generation).with_access(Access(keys=keys, slo_floors=floors))
    shared_tables(folder, routed, 1)
    write_module_table(folder, routed, 1, 10.0)
    envoy.fake_header(b"x-slo-ttft-ms", asked_ms)
    envoy.fake_header(b"x-penstock-objective", b"critical")
    envoy.fake_time(ctypes.c_double(4.7e6 + generation))
    body, destination, status = b'{"model": "m", "max_tokens": 9}', ctypes.create_string_buffer(256), ctypes.c_int()
    size = ctypes.c_size_t(len(body))
    try:
        handle = envoy.fake_request(body, size, size, tenant, destination, ctypes.byref(status))
    finally:
        envoy.fake_header(None, None)
    request = np.frombuffer(_recorded_bytes(envoy), RECORDED)[0]["request"]
    envoy.fake_end(ctypes.c_void_p(handle), destination.value.partition(b",")[0], 1)
    (ended,) = EndedRing(folder, 1).drain()
    assert (request["ttft_s"], request["weight"]) == pytest.approx(expected)
    assert ended["ttft_limit_s"] == 0.5  # the class's own


def test_a_reload_counts_requests_in_flight_at_their_new_places(envoy: ctypes.CDLL, folder: Path) -> None:
    client = Client(envoy, 2)
    client.now_s = 5e6  # after the clock of the full ring
    sent = [client.send() for _ in range(40)]
    before, after = module_fleet(), module_fleet(1, range(ENDPOINTS - 2, 1, -1))
    shared_tables(folder, after, 1)
    write_module_table(folder, after, 1, 10.0, before)
    client.now_s += 0.01
    sent.append(client.send())
    table = ModuleTable(table_file(folder, 1))
    expected = [sum(one == address for one in sent) for address in after.addresses]
    assert table.endpoints["in_flight"].tolist() == expected
    counts = shared_tables(folder, after, 1).counts[0]
    assert counts["in_flight"].tolist() == expected
    client.pass_time(1e6)
    assert not table.endpoints["in_flight"].any()
    assert not counts["in_flight"].any()
    assert (counts["picked"] == counts["ended"]).all()
