"""Decisions that a gateway wrote down are made again by any policy, and explained."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from gateway_fakes import Clock, body_fields, fleet, picker_of, report
from penstock.api.document_schemas import json_schema
from penstock.api.receipts import receipts
from penstock.cli.root import app
from penstock.errors import UnreadableFile, UsageError
from penstock.gateway.picker.decision_receipts import ReceiptBook
from penstock.gateway.picker.picker import EndpointChoice, Picker
from penstock.gateway.picker.request_body import RequestHints
from penstock.report.receipts import _dollars, _heading
from penstock.routing.autoscaler.sustained import LoadKind, weights_by_capacity
from penstock.routing.baselines.all_policies import POLICIES
from penstock.routing.records import default_parameters, new_endpoints, new_request

DECISIONS = 24


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a picker writes of a fleet whose second endpoint of a model is four times as slow, and dearer."""
    path = tmp_path_factory.mktemp("receipts") / "receipts.0.jsonl"
    clock, routed = Clock(), fleet(8)
    routed.endpoints["step_s"][2::4] *= 4
    routed.endpoints["usd_per_s"] = 1e-3
    routed.endpoints["usd_per_s"][2::4] = 2e-3
    _, tables = picker_of(routed, clock)
    book = ReceiptBook(path, 1, routed.addresses)
    picker = Picker(routed, tables, 0, clock, receipts=book)
    for number in range(DECISIONS):
        for index in range(8):
            report(tables, index, clock, running=number % 5, kv_tokens=100_000, kv_used_tokens=1000 * number)
        assert isinstance(picker.decide(body_fields("a"), b"", RequestHints()), EndpointChoice)
        clock.now_s += 0.5
    book.close()
    return path


def test_our_own_policy_makes_every_decision_again(written: Path) -> None:
    (ours,) = receipts([written], policy="penstock").replays
    assert (ours.agreed_fraction, ours.turned_away) == (1.0, 0)
    assert sum(ours.sent.values()) == DECISIONS


def test_in_turn_costs_more_and_goes_everywhere_that_serves_the_model(written: Path) -> None:
    ours, turns, least = receipts([written]).replays
    assert (turns.policy.name, least.policy.name) == ("round-robin", "least-request")
    assert set(turns.sent) == {f"10.0.0.{index}:8000" for index in (0, 2, 4, 6)}
    assert turns.agreed_fraction < 1
    assert turns.engine_usd_per_1000_requests > ours.engine_usd_per_1000_requests


def test_what_is_paid_anyway_differs_in_no_bill_and_the_answer_says_so(written: Path, tmp_path: Path) -> None:
    """Attack: "$ per 1,000 requests" named a policy 10% cheaper on a fleet that costs the same under every one."""
    answer = receipts([written])
    assert [one.elastic_usd_per_1000_requests for one in answer.replays] == [0.0] * 3
    shown = CliRunner().invoke(app, ["receipts", str(written)], env={"COLUMNS": "160"}).stdout
    assert "A pool with fixed capacity costs the same under every policy." in " ".join(shown.split())
    e, q = new_endpoints(2), new_request()
    e["usd_per_s"], e["saved_usd_per_s"], e["kv_tokens"], e["prompt_token_s"] = 1e-3, (0.0, 1e-3), 500_000, 1e-4
    q["input_tokens"], q["expected_output_tokens"] = 1000, 200
    book = ReceiptBook(tmp_path / "elastic.jsonl", 1, ("10.0.0.0:8000", "10.0.0.1:8000"))
    for _ in range(2):
        book.add(q, e, np.zeros(2, np.int64), default_parameters(), np.array([0]))
    book.close()
    (turns,) = receipts([tmp_path / "elastic.jsonl"], policy="round-robin").replays
    assert turns.elastic_usd_per_1000_requests == pytest.approx(turns.engine_usd_per_1000_requests / 2)


def test_what_is_turned_away_has_missed_its_promise_as_what_is_served_late_has(tmp_path: Path) -> None:
    """Attack: 0.52% of the two requests one policy served stood beside 32.5% of all four of another."""
    e, q, p = new_endpoints(2), new_request(), default_parameters()
    e["kv_tokens"], e["max_running"], e["step_tokens"], e["tpot_now_s"] = 500_000, 256, 8192, 0.02
    e["prompt_token_s"], e["free_tokens"] = 1e-3, 500_000
    q["ttft_s"], q["tpot_s"], q["expected_output_tokens"], q["sheddable"] = 2.0, 0.06, 200, 1
    book = ReceiptBook(tmp_path / "shed.jsonl", 1, ("10.0.0.0:8000", "10.0.0.1:8000"))
    for tokens, chosen in ((100, [0]), (100, [1]), (8000, []), (8000, [])):  # the long ones are four times too late
        q["input_tokens"] = tokens
        book.add(q, e, np.zeros(2, np.int64), p, np.array(chosen, np.int64))
    book.close()
    ours, turns = receipts([tmp_path / "shed.jsonl"], policy="penstock,round-robin").replays
    assert (ours.turned_away, turns.turned_away) == (2, 0)
    assert ours.sent_miss_fraction < 0.01
    assert turns.expected_miss_fraction == turns.sent_miss_fraction == pytest.approx(0.5, abs=0.01)
    assert ours.expected_miss_fraction == pytest.approx(0.5, abs=0.01), "over the same four requests"


def test_every_policy_can_be_asked(written: Path) -> None:
    peers = "weighted-round-robin,in-flight-per-capacity,llm-d,llm-d-scorers,dynamo,sglang-cache-aware"
    for one in receipts([written], policy=peers).replays:
        assert sum(one.sent.values()) + one.turned_away == DECISIONS, one.policy.name


def weighted_decisions(path: Path, name: str, *, counts: tuple[int, int] = (2, 2)) -> tuple[float, float]:
    """Write down what a weighted policy does by itself; return its weights, as the simulator would set them."""
    e, q, p = new_endpoints(sum(counts)), new_request(), default_parameters()
    second = np.arange(sum(counts)) >= counts[0]
    e["pool"], e["step_s"], e["prompt_token_s"] = second, np.where(second, 0.02, 0.01), np.where(second, 8e-5, 2e-5)
    e["kv_tokens"], e["max_running"], e["step_tokens"], e["request_s"] = 500_000, 256, 8192, 0.0
    q["input_tokens"], q["expected_output_tokens"], q["ttft_s"], q["tpot_s"] = 1000, 200, 2.0, 0.06
    load = [LoadKind(share=1.0, input_tokens=1000, output_tokens=200, ttft_s=2.0, tpot_s=0.06)]
    weights = weights_by_capacity([e[0], e[-1]], [load, load])
    weighing, rng = p.copy(), np.random.default_rng(1)
    weighing["tuning"][0, :2] = weights
    # What was learned since is not what an operator set.
    e["decode_correction"][second], hits = 1.3, np.zeros(len(e), np.int64)
    book = ReceiptBook(path, 1, tuple(f"10.0.0.{index}:8000" for index in range(len(e))))
    for number in range(200):
        q["number"], q["turn"] = number, rng.integers(0, 1000)
        chosen = int(POLICIES[name].pick(q, e, hits, weighing))
        book.add(q, e, hits, p, np.array([chosen]))
        e["sent"][chosen] += 1
        e["in_flight"][chosen] += 1
        e["in_flight"][rng.choice(np.flatnonzero(e["in_flight"]))] -= number > 20
    book.close()
    return weights[0], weights[1]


@pytest.mark.parametrize("name", ["weighted-round-robin", "in-flight-per-capacity"])
def test_a_weighted_policy_makes_its_own_decisions_again(name: str, tmp_path: Path) -> None:
    """Attack: 27% of them, by weights of its own and by turns of whoever ran."""
    path = tmp_path / "own.0.jsonl"
    fast, slow = weighted_decisions(path, name)
    (found,) = receipts([path], policy=name).replays
    assert found.agreed_fraction == 1.0
    if name == "weighted-round-robin":
        shares = [found.sent[f"10.0.0.{index}:8000"] / 200 for index in range(4)]
        assert shares == pytest.approx([fast / (fast + slow) / 2] * 2 + [slow / (fast + slow) / 2] * 2, abs=0.01)


def test_by_equal_weights_in_turn_is_in_turn_whoever_ran(tmp_path: Path) -> None:
    """Attack: of four equal endpoints it named whoever was behind under the policy that ran."""
    path = tmp_path / "equal.0.jsonl"
    weighted_decisions(path, "least-request", counts=(4, 0))
    for one in receipts([path], policy="weighted-round-robin,round-robin").replays:
        assert list(one.sent.values()) == [50] * 4, one.policy.name


def test_more_kinds_than_there_are_weights_are_refused(tmp_path: Path) -> None:
    path, q, e = tmp_path / "many.0.jsonl", new_request(), new_endpoints(9)
    e["pool"], e["kv_tokens"], e["step_s"] = range(9), 500_000, 0.01
    q["input_tokens"], q["expected_output_tokens"] = 1000, 200
    book = ReceiptBook(path, 1, tuple(f"10.0.0.{index}:8000" for index in range(9)))
    book.add(q, e, np.zeros(9, np.int64), default_parameters(), np.array([0]))
    book.close()
    with pytest.raises(UsageError, match="weighted-round-robin supports at most 8 kinds of endpoints, but there are 9"):
        receipts([path], policy="weighted-round-robin")


def test_an_explained_decision_has_every_endpoint_and_the_order_that_was_named(written: Path) -> None:
    answer = receipts([written], policy="penstock", explained=DECISIONS)
    assert answer.explained is not None
    lines = answer.explained.receipt.lines
    assert [line.ruled_out for line in lines] == [None, "does not serve the model"] * 4
    first = answer.explained.order[0]
    assert lines[first].harm == min(line.harm for line in lines if line.ruled_out is None)


@pytest.mark.parametrize(
    ("admission_misses", "reason"), [(math.inf, "all pickers give up the same endpoint"), (2.0, "it does not admit")]
)
def test_a_choice_that_is_not_of_least_harm_is_explained(admission_misses: float, reason: str, written: Path) -> None:
    explained = receipts([written], policy="penstock", explained=DECISIONS).explained
    assert explained is not None
    assert "less harm" not in _heading(explained).plain
    able = [line for line in explained.receipt.lines if line.ruled_out is None]
    worst, best = (choose(able, key=lambda line: line.harm).endpoint for choose in (max, min))
    receipt = replace(explained.receipt, chosen=worst, admission_misses=admission_misses)
    heading = _heading(replace(explained, order=(worst, best), receipt=receipt)).plain
    assert f"{explained.addresses[best]} has less harm, but {reason}" in heading


def test_the_command_prints_the_document_of_its_schema_and_a_table_that_loses_nothing(written: Path) -> None:
    words = ["receipts", str(written), "--policy", "penstock,round-robin", "--explain", "3"]
    printed = CliRunner().invoke(app, [*words, "--json"])
    answer = receipts([written], policy="penstock,round-robin", explained=3)
    assert printed.exit_code == 0
    assert printed.stdout == answer.to_json() + "\n"
    Draft202012Validator(json_schema("penstock.receipts/3")).validate(json.loads(printed.stdout))
    assert len(repr(answer)) < 200
    assert [row["policy"] for row in answer.rows()] == ["penstock", "round-robin"]
    for columns in ("60", "80", "160"):
        drawn = CliRunner().invoke(app, words, env={"COLUMNS": columns}).stdout
        assert "…" not in drawn
        assert "does not serve the model" in drawn
        assert max(len(line) for line in drawn.splitlines()) <= int(columns)


def test_a_file_that_is_none_and_a_decision_that_is_not_there_are_one_line(written: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "other.jsonl").write_text('{"addresses": ["a"], "request": "AAAA"}\n')
    (tmp_path / "none.jsonl").write_bytes(b"\xff\xfe\n")
    with pytest.raises(UsageError, match="one decision in a thousand"):
        receipts([tmp_path / "empty.jsonl"])
    with pytest.raises(UnreadableFile, match=r"other.jsonl, line 1: not a receipt"):
        receipts([tmp_path / "other.jsonl"])
    with pytest.raises(UnreadableFile, match="not a file of receipts"):
        receipts([tmp_path / "none.jsonl"])
    with pytest.raises(UnreadableFile, match="--receipts FILE"):
        receipts([tmp_path / "missing.jsonl"])
    with pytest.raises(UsageError, match="give a number from 1 to 24"):
        receipts([written], explained=25)
    with pytest.raises(UsageError, match="is not a routing policy"):
        receipts([written], policy="guess")


def test_a_line_that_was_cut_is_left_out(written: Path, tmp_path: Path) -> None:
    whole = written.read_text()
    (tmp_path / "cut.jsonl").write_text(whole[: len(whole) - 20])
    assert receipts([tmp_path / "cut.jsonl"], policy="penstock").decisions == DECISIONS - 1


@pytest.mark.parametrize("name", ["order", "hits", "endpoints", "request"])
def test_records_that_do_not_belong_together_are_refused(name: str, written: Path, tmp_path: Path) -> None:
    first, second = (json.loads(line) for line in written.read_text().splitlines()[:2])
    first[name] = second["parameters"]
    (tmp_path / "mixed.jsonl").write_text(json.dumps(first) + "\n")
    with pytest.raises(UnreadableFile, match="not a receipt of this version"):
        receipts([tmp_path / "mixed.jsonl"])


def test_a_line_that_was_cut_is_said_to_be_left_out(written: Path, tmp_path: Path) -> None:
    """Attack: the last decision of a file that was cut was dropped without a word."""
    lines = written.read_text().splitlines(keepends=True)
    cut = tmp_path / "cut.0.jsonl"
    cut.write_text("".join(lines[:5]) + lines[5][:40])
    answer = receipts([cut], policy="penstock")
    assert (answer.decisions, answer.cut_files, receipts([written]).cut_files) == (5, ("cut.0.jsonl",), ())
    said = CliRunner().invoke(app, ["receipts", str(cut)])
    assert "Left out: the truncated last line of cut.0.jsonl" in said.stdout
    cut.write_text(lines[0][:40])
    with pytest.raises(UsageError, match=r"no decision except a truncated line in cut\.0\.jsonl"):
        receipts([cut])


def test_decisions_count_once(written: Path, tmp_path: Path) -> None:
    """Attack: the same file given twice, or a copy of it, counted its decisions double."""
    copy = tmp_path / "other-name.jsonl"
    copy.write_bytes(written.read_bytes())
    for again in (written, copy):
        with pytest.raises(UsageError, match="would count twice; name only one") as caught:
            receipts([written, again])
        assert len(str(caught.value).splitlines()) == 1


def test_a_receipt_of_another_version_says_the_fix(tmp_path: Path) -> None:
    path = tmp_path / "old.jsonl"
    path.write_text('{"addresses": []}\n')
    with pytest.raises(UnreadableFile, match=r"old\.jsonl, line 1: .*read it with the penstock that wrote it"):
        receipts([path])


def test_a_fleet_files_weights_are_in_no_receipt(written: Path) -> None:
    with pytest.raises(UsageError, match="use `weighted-round-robin`"):
        receipts([written], policy="static-weight")


@pytest.mark.parametrize(
    ("usd", "written_as"), [(0.0, "0.000"), (0.00042, "0.000420"), (3.2e-7, "0.000000320"), (1234.5, "1,234.500")]
)
def test_small_amounts_keep_digits_that_say_something(usd: float, written_as: str) -> None:
    assert _dollars(usd) == written_as


def test_every_third_decision_is_written_down_however_often_the_fleet_is_read_again(tmp_path: Path) -> None:
    path, count = tmp_path / "receipts.0.jsonl", 0
    arrays = (new_request(), new_endpoints(1), np.zeros(1, np.int64), default_parameters(), np.zeros(1, np.int64))
    for _ in range(6):
        book = ReceiptBook(path, 3, ("10.0.0.0:8000",), count=count)
        book.add(*arrays)
        book.add(*arrays)
        book.close()
        count = book.count
    assert len(path.read_text(encoding="ascii").splitlines()) == 4
