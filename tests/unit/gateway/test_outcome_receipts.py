"""How requests end is written down for the bill: tenant, tokens, times and promises, in the files of decisions."""

import json
from pathlib import Path

import pytest

from gateway_fakes import Clock, body_fields, fleet, picker_of, report
from penstock.errors import UnreadableFile
from penstock.gateway.envoy.envoy_config import ENDING, OUTCOME
from penstock.gateway.picker.decision_receipts import ReceiptBook, read_receipts
from penstock.gateway.picker.ended_requests import EndedRequests
from penstock.gateway.picker.outcome_receipts import METER_EVERY_S, ObservedAnswer, generates_tokens
from penstock.gateway.picker.picker import EndpointChoice, Picker
from penstock.gateway.picker.recorded_outcomes import RecordedTraffic, read_traffic
from penstock.gateway.picker.request_body import RequestHints


class Recorded:
    """A picker that writes receipts into a folder."""

    def __init__(self, folder: Path) -> None:
        self.path, self.clock, self.fleet = folder / "receipts.0.jsonl", Clock(), fleet()
        _, self.tables = picker_of(self.fleet, self.clock)
        self.book = ReceiptBook(self.path, 1000, self.fleet.addresses, meters=True)
        self.picker = Picker(self.fleet, self.tables, 0, self.clock, receipts=self.book)
        for index in range(4):
            report(self.tables, index, self.clock, kv_tokens=100_000, prompt_tokens=100.0, generated_tokens=10.0)

    def send(self, tenant: str = "search", body_bytes: int = 400) -> EndpointChoice:
        sent = self.picker.decide(body_fields("a", body_bytes), b"", RequestHints(tenant=tenant))
        assert isinstance(sent, EndpointChoice)
        return sent

    def read(self) -> RecordedTraffic:
        self.book.close()
        return read_traffic([self.path])


def test_an_outcome_has_tenant_tokens_times_and_promise(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    sent = recorded.send()
    recorded.clock.now_s += 0.9  # below the limit of 1 s for the first token, and of 50 ms for 50 tokens
    answer = ObservedAnswer(50 * 221, streamed=True, generates=True)
    recorded.picker.state.end(sent.ticket, "", 200, "-", 1, answer=answer)
    (ended,) = recorded.read().outcomes
    assert (ended.tenant, ended.model, ended.pool, ended.status) == ("search", "a", "p", 200)
    assert ended.endpoint == recorded.fleet.addresses[sent.order[0]]
    assert (ended.input_tokens, ended.cached_tokens, ended.output_tokens) == (100, 0, 50)
    assert ended.duration_s == pytest.approx(0.9)
    assert ended.kept is True
    line = json.loads(recorded.path.read_text("ascii").splitlines()[0])
    assert (line["version"], line["ended"]["class"], line["ended"]["tokens_from"]) == (3, "chat", "bytes")


@pytest.mark.parametrize(
    ("duration_s", "first_s", "status", "kept"),
    [
        (0.9, None, 200, True),
        (2.0, None, 200, None),  # its first token was not seen
        (2.0, 0.5, 200, True),
        (2.0, 1.5, 200, False),
        (4.0, 0.5, 200, False),  # 3.5 s for 49 tokens
        (0.9, None, 503, False),
        (0.9, None, 400, None),  # its own fault
        (0.9, None, 0, None),  # its client left
    ],
)
def test_a_promise_is_judged_by_what_was_seen(
    tmp_path: Path, duration_s: float, first_s: float | None, status: int, kept: object
) -> None:
    recorded = Recorded(tmp_path)
    sent, begun_s = recorded.send(), recorded.clock.now_s
    recorded.clock.now_s += duration_s
    answer = ObservedAnswer(50 * 221, True, True, None if first_s is None else begun_s + first_s)  # noqa: FBT003
    recorded.picker.state.end(sent.ticket, "", status, "-" if status else "DC", 1, answer=answer)
    (ended,) = recorded.read().outcomes
    assert ended.kept is kept


def test_an_answer_that_was_not_seen_counts_as_long_as_expected(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    sent = recorded.send()
    recorded.clock.now_s += 0.5
    recorded.picker.state.end(sent.ticket, "", 200, "-", 1)
    (ended,) = recorded.read().outcomes
    assert (ended.output_tokens, ended.response_bytes) == (50, None)


def test_a_moved_request_is_charged_where_it_was_served(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    sent = recorded.send()
    recorded.picker.state.end(sent.ticket, recorded.fleet.addresses[sent.order[1]], 200, "-", 2)
    (ended,) = recorded.read().outcomes
    assert ended.endpoint == recorded.fleet.addresses[sent.order[1]]


def test_requests_in_flight_are_written_after_a_reload(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    sent = recorded.send()
    recorded.book.close()
    book = ReceiptBook(recorded.path, 1000, recorded.fleet.addresses)
    after = Picker(recorded.fleet, recorded.tables, 0, recorded.clock, receipts=book)
    after.adopt(recorded.picker)
    after.state.end(sent.ticket, "", 200, "-", 1)
    book.close()
    assert [ended.tenant for ended in read_traffic([recorded.path]).outcomes] == ["search"]


def test_meters_are_written_at_intervals_and_at_the_end(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    for _ in range(3):
        recorded.picker.state.tick()
        recorded.clock.now_s += 0.6 * METER_EVERY_S
    meters = recorded.read().meters
    assert len(meters) == 3
    assert set(meters[0].tokens) == set(recorded.fleet.addresses)
    assert set(meters[0].tokens.values()) == {(100.0, 10.0)}


def test_an_engine_without_a_count_of_output_tokens_has_counted_the_intervals_between_them(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    for index in range(4):
        report(recorded.tables, index, recorded.clock, generated_tokens=0.0, ttft_count=3, itl_count=97)
    recorded.picker.state.tick()
    assert set(recorded.read().meters[0].tokens.values()) == {(100.0, 100.0)}


def test_outcomes_do_not_disturb_the_replay_of_decisions(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    book = recorded.picker._receipts  # noqa: SLF001 - to write every decision
    assert book is not None
    book._every = 1  # noqa: SLF001 - same
    for _ in range(3):
        recorded.picker.state.end(recorded.send().ticket, "", 200, "-", 1)
    traffic = recorded.read()
    assert len(traffic.outcomes) == len(traffic.decisions) == len(list(read_receipts(recorded.path))) == 3


@pytest.mark.parametrize("cut", ['{"version": 3, "en', "x" * 200_000], ids=["short", "longer than a piece"])
@pytest.mark.parametrize(
    "before", ["", '{"version": 3, "meter": {"at_unix_s": 1, "tokens": {}}}\n'], ids=["alone", "after"]
)
def test_a_line_that_a_killed_picker_left_incomplete_is_removed(tmp_path: Path, cut: str, before: str) -> None:
    path = tmp_path / "receipts.0.jsonl"
    path.write_text(before + cut)
    ReceiptBook(path, 1, ("10.0.0.0:8000",)).close()
    assert path.read_text() == before
    assert not list(read_receipts(path))


@pytest.mark.parametrize(
    "line",
    [
        '{"version": 3, "ended": {}}',
        '{"version": 3, "ended": {"tenant": "x"}}',
        '{"version": 3, "meter": {"at_unix_s": 1, "tokens": {"a": [1]}}}',
        '{"version": 3}',
        "[1]",
        "not json",
    ],
)
def test_a_strange_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "receipts.0.jsonl"
    path.write_text(line + "\n", "ascii")
    with pytest.raises(UnreadableFile, match=r"receipts\.0\.jsonl, line 1: not a "):
        read_traffic([path])


def test_envoys_line_has_the_size_and_the_counts_of_an_answer(tmp_path: Path) -> None:
    assert OUTCOME.startswith(ENDING.rstrip())
    recorded = Recorded(tmp_path)
    pipe = tmp_path / "endings.pipe"
    pipe.touch()
    endings = EndedRequests(str(pipe), recorded.picker.state)
    sent = [recorded.send() for _ in range(5)]
    address = recorded.fleet.addresses[sent[0].order[0]]
    answers = [
        f"{221 * 30} - /v1/chat/completions text/event-stream; charset=utf-8",
        f"{450 + 90} - /v1/chat/completions application/json",
        "20000 - /v1/embeddings application/json",
        "9999 1795036847123/812/640/77 /v1/chat/completions text/event-stream",
        '9999 "1795036847123/812/-/77" /v1/chat/completions application/json',
    ]
    lines = [f"{one.ticket} 200 - {address} 1 {answer}" for one, answer in zip(sent, answers, strict=True)]
    pipe.write_text("\n".join(lines) + "\n", "ascii")
    endings.read()
    found = recorded.read().outcomes
    assert [(one.output_tokens, one.streamed) for one in found[:3]] == [(30, True), (20, False), (0, False)]
    assert [one.output_counted for one in found] == [False, False, False, True, True]
    exact = [(one.input_tokens, one.cached_tokens, one.output_tokens) for one in found[3:]]
    assert exact == [(812, 640, 77), (812, 0, 77)]


def test_paths_that_generate_tokens() -> None:
    assert generates_tokens("/v1/chat/completions?x=1")
    assert generates_tokens("/v1/messages")
    assert not generates_tokens("/v1/embeddings")
