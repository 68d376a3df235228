"""An invoice from files of receipts: what is read, what is charged, what is refused with one line."""

import json
from collections.abc import Mapping
from math import fsum
from pathlib import Path

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from penstock.api.bill import BillAnswer, bill
from penstock.api.document_schemas import json_schema
from penstock.cli.root import app
from penstock.errors import UnreadableFile, UsageError
from simulated import drawn

FLEET = Path(__file__).resolve().parents[3] / "examples" / "fleets" / "chat-h100-mi300x.yaml"
ADDRESSES = {"h100": ("10.0.0.1:8000", "10.0.0.2:8000"), "mi300x": ("10.0.0.3:8000", "10.0.0.4:8000")}
BEGUN_S = 1_793_491_200.0
"""2026-11-01 00:00 UTC"""


def ended(at_s: float, **more: object) -> Mapping[str, object]:
    """The line of a request that ended `at_s` seconds after the first of November."""
    usual = {
        "ended_unix_s": BEGUN_S + at_s,
        "tenant": "search",
        "model": "llama-3.1-8b",
        "class": "chat",
        "request_bytes": 4000,
        "input_tokens": 1000,
        "pool": "h100",
        "endpoint": ADDRESSES["h100"][0],
        "status": 200,
        "failed": False,
        "duration_s": 2.0,
        "waited_s": 0.0,
        "ttft_s": None,
        "cached_tokens": 0,
        "output_tokens": 100,
        "tokens_from": "bytes",
        "prompt_from": "bytes",
        "response_bytes": 23_000,
        "streamed": True,
        "kept": True,
    }
    return {"version": 3, "ended": usual | more}


def meter(at_s: float, prompt: float, output: float) -> Mapping[str, object]:
    tokens = {ADDRESSES["h100"][0]: [prompt, output]}
    return {"version": 3, "meter": {"at_unix_s": BEGUN_S + at_s, "tokens": tokens}}


def written(folder: Path, *lines: Mapping[str, object], name: str = "receipts.0.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "ascii")
    return path


def tenants(answer: BillAnswer) -> Mapping[str, float]:
    return {line.tenant: line.usd for line in answer.invoice.tenants}


def test_tenants_and_idle_time_pay_the_rent_of_the_period(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        ended(100.0),
        ended(101.0, tenant="batch", pool="mi300x", endpoint=ADDRESSES["mi300x"][0]),
        ended(102.0, tenant="", output_tokens=200),
    )
    answer = bill([path], FLEET, start="2026-11-01", end="2026-11-01T01:00")
    assert answer.invoice.rent_usd == pytest.approx(2 * 2.5 + 2 * 2.0)
    paid = fsum([*tenants(answer).values(), answer.invoice.idle_usd])
    assert paid == pytest.approx(answer.invoice.rent_usd, rel=1e-9)
    # Two requests overlap for 0 s at h100's first replica: 4 s busy; the other pool's were busy for 2 s.
    assert [line.busy_s for line in answer.invoice.pools] == pytest.approx([4.0, 2.0])
    assert tenants(answer)["batch"] == pytest.approx(2.0 * 2.0 / 3600)
    assert tenants(answer)[""] > tenants(answer)["search"]


def test_idle_time_is_spread_on_request(tmp_path: Path) -> None:
    path = written(tmp_path, ended(100.0), ended(101.0, tenant="batch", pool="mi300x", endpoint=ADDRESSES["mi300x"][0]))
    answer = bill([path], FLEET, start="2026-11-01", end="2026-11-01T01:00", idle="spread")
    assert answer.invoice.idle_usd == 0.0
    assert fsum(tenants(answer).values()) == pytest.approx(9.0, rel=1e-9)
    assert tenants(answer)["search"] / tenants(answer)["batch"] == pytest.approx(2.5 / 2.0)


def test_requests_in_flight_together_are_busy_once(tmp_path: Path) -> None:
    first = [ended(100.0 + number / 10) for number in range(5)]
    other = [ended(100.0, endpoint=ADDRESSES["h100"][1])]
    answer = bill([written(tmp_path, *first, *other)], FLEET)
    assert answer.invoice.pools[0].busy_s == pytest.approx(2.4 + 2.0)


def test_files_of_several_pickers_and_gateways_make_one_bill(tmp_path: Path) -> None:
    lines = [ended(100.0 + number, tenant=f"t{number % 3}") for number in range(9)]
    together = bill([written(tmp_path, *lines)], FLEET)
    parts = [written(tmp_path, *lines[part::2], name=f"part{part}.jsonl") for part in range(2)]
    assert tenants(bill(parts, FLEET)) == tenants(together)


def test_refused_and_failed_requests_miss_their_slo_and_pay_nothing(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        ended(100.0, kept=False),
        ended(101.0, kept=None),
        ended(102.0, status=429, pool="", endpoint="", duration_s=0.0, kept=False, output_tokens=0),
        ended(103.0, status=503, kept=False, output_tokens=0, tenant="batch"),
        ended(104.0, status=404, kept=None, output_tokens=0),
        ended(105.0, failed=True, kept=False, tenant="batch"),
    )
    lines = {line.tenant: line for line in bill([path], FLEET).invoice.tenants}
    search, batch = lines["search"], lines["batch"]
    assert (search.requests, search.kept, search.missed, search.unknown, search.refused) == (2, 0, 2, 1, 1)
    assert (batch.requests, batch.missed, batch.usd) == (0, 2, 0.0)


def test_tokens_are_scaled_to_the_counts_of_the_engine(tmp_path: Path) -> None:
    lines = [ended(100.0 + number) for number in range(20)]
    path = written(tmp_path, meter(0.0, 500.0, 70.0), *lines, meter(200.0, 500.0 + 25_000, 70.0 + 1_800))
    answer = bill([path], FLEET)
    (line,) = answer.invoice.tenants
    assert (line.input_tokens, line.output_tokens) == (25_000, 1_800)
    assert answer.metered_fraction == 1.0


def test_requests_whose_tokens_the_engine_counted_are_not_scaled(tmp_path: Path) -> None:
    lines = [ended(100.0 + number) for number in range(20)]
    exact = [ended(150.0, tenant="exact", tokens_from="engine", prompt_from="engine", input_tokens=7777)]
    path = written(tmp_path, meter(0.0, 0.0, 0.0), *lines, *exact, meter(200.0, 25_000 + 7777, 1_800 + 100))
    found = {line.tenant: line for line in bill([path], FLEET).invoice.tenants}
    assert (found["search"].input_tokens, found["search"].output_tokens) == (25_000, 1_800)
    assert (found["exact"].input_tokens, found["exact"].output_tokens) == (7777, 100)


def test_later_traffic_does_not_change_the_tokens_of_a_period(tmp_path: Path) -> None:
    """The counters grow by 25,000 and 1,800 for the first 20 requests, and by as much for the next."""
    first, second = ([ended(begun + number) for number in range(20)] for begun in (100.0, 1100.0))
    meters = [meter(0.0, 0.0, 0.0), meter(200.0, 25_000, 1_800), meter(1200.0, 50_000, 3_600)]
    begin, end = "2026-11-01T00:00:00", "2026-11-01T00:05:00"
    path = written(tmp_path, meters[0], *first, meters[1], name="early.jsonl")
    early = bill([path], FLEET, start=begin, end=end)
    path = written(tmp_path, meters[0], *first, meters[1], *second, meters[2])
    whole = bill([path], FLEET, start=begin, end=end)
    (line,) = whole.invoice.tenants
    assert (line.input_tokens, line.output_tokens) == (25_000, 1_800)
    assert tenants(whole) == pytest.approx(tenants(early))


def test_prompts_that_engines_count_before_their_request_ends_are_counted_once(tmp_path: Path) -> None:
    """A prompt is counted when it is computed, and stated when its request ends: here always one interval later."""
    exact = [
        ended(10.0 * number + 5, tenant="exact", tokens_from="engine", prompt_from="engine", input_tokens=10_000)
        for number in range(1, 21)
    ]
    unknown = [ended(10.0 * number + 6) for number in range(1, 21)]
    meters = [
        meter(10.0 * number, 10_000.0 * min(20, number) + 1_000.0 * max(0, number - 1), 200.0 * max(0, number - 1))
        for number in range(22)
    ]
    answer = bill([written(tmp_path, *meters, *exact, *unknown)], FLEET)
    lines = {line.tenant: line for line in answer.invoice.tenants}
    assert lines["exact"].input_tokens == 200_000
    assert lines["search"].input_tokens == pytest.approx(20_000, rel=0.51)  # the first prompt may count twice


def test_counts_of_an_engine_that_started_again_are_not_used(tmp_path: Path) -> None:
    lines = [ended(100.0 + number) for number in range(20)]
    path = written(tmp_path, meter(0.0, 9e6, 9e6), *lines, meter(200.0, 25_000, 1_800))
    answer = bill([path], FLEET)
    assert answer.invoice.tenants[0].output_tokens == 2000
    assert answer.metered_fraction == 0.0


def test_replica_hours_replace_the_replicas_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, ended(100.0))
    answer = bill([path], FLEET, start="2026-11-01", end="2026-11-02", replica_hours={"h100": 30.0, "mi300x": 0.0})
    assert answer.invoice.rent_usd == pytest.approx(30 * 2.5)


def test_the_same_work_on_each_vendor_and_at_an_api(tmp_path: Path) -> None:
    path = written(tmp_path, *(ended(100.0 + number) for number in range(50)))
    (line,) = bill([path], FLEET, api_usd_per_mtok="0.5,1.5").invoice.tenants
    assert line.api_usd == pytest.approx(50 * (1000 * 0.5 + 100 * 1.5) / 1e6)
    assert line.vendor_usd["nvidia"] == pytest.approx(line.usd)
    amd = line.vendor_usd["amd"]
    assert amd is not None
    assert 0.2 * line.usd < amd < 5 * line.usd


def test_the_document_has_its_schema_and_the_page_fits_80_columns(tmp_path: Path) -> None:
    path = written(
        tmp_path, ended(100.0), ended(101.0, tenant=""), ended(150.0, tenant="b" * 20, input_tokens=4_000_000)
    )
    runner = CliRunner(env={"COLUMNS": "80"})
    given = ["bill", str(path), "--fleet", str(FLEET), "--api-usd-per-mtok", "0.6,0.6"]
    printed = runner.invoke(app, given)
    assert printed.exit_code == 0, printed.output
    assert max(map(len, printed.stdout.splitlines())) <= 80
    assert "anonymous" in printed.stdout
    document = json.loads(runner.invoke(app, [*given, "--json"]).stdout)
    Draft202012Validator(json_schema("penstock.bill/1")).validate(document)
    assert fsum([*(one["usd"] for one in document["tenants"]), document["idle_usd"]]) == pytest.approx(
        document["rent_usd"], rel=1e-9
    )


def test_an_idle_day_is_all_idle(tmp_path: Path) -> None:
    answer = bill([written(tmp_path)], FLEET, start="2026-11-01", end="2026-11-02", idle="spread")
    assert (answer.invoice.tenants, answer.invoice.idle_usd) == ((), answer.invoice.rent_usd)
    assert "idle" in drawn(answer)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"idle": "shared"}, "--idle is 'shared'; use one of separate, spread"),
        ({"api_usd_per_mtok": "0.6"}, "--api-usd-per-mtok is '0.6'"),
        ({"api_usd_per_mtok": "0.6,nan"}, "--api-usd-per-mtok is '0.6,nan'"),
        ({"start": "yesterday"}, "--from is 'yesterday'"),
        ({"start": "2026-11-02", "end": "2026-11-01"}, "the period is empty"),
        ({"replica_hours": {"a100": 1.0}}, "no pool is called 'a100'; the pools are h100, mi300x"),
        ({"replica_hours": {"h100": 0.0001}}, "busy for 2 s but rented for only 0 s"),
    ],
)
def test_mistakes_are_named_in_one_line(tmp_path: Path, given: Mapping[str, object], message: str) -> None:
    path = written(tmp_path, ended(100.0))
    with pytest.raises(UsageError, match=message) as error:
        bill([path], FLEET, **given)  # type: ignore[arg-type] # mistakes
    assert "\n" not in str(error.value)


def test_a_pool_of_another_fleet_or_without_a_price_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="pool 'a100' of the receipts is not in the fleet file"):
        bill([written(tmp_path, ended(100.0, pool="a100"))], FLEET)
    free = tmp_path / "fleet.yaml"
    free.write_text(FLEET.read_text("utf-8").replace("usd_per_hour: 2.0", "usd_per_hour: null"), "utf-8")
    with pytest.raises(UsageError, match="pool 'mi300x' has no price"):
        bill([written(tmp_path, ended(100.0))], free)


def test_copies_empty_files_and_foreign_files_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, ended(100.0))
    with pytest.raises(UsageError, match="would count twice"):
        bill([path, written(tmp_path, ended(100.0), name="copy.jsonl")], FLEET)
    with pytest.raises(UsageError, match="record no end of a request"):
        bill([written(tmp_path, name="empty.jsonl")], FLEET)
    with pytest.raises(UnreadableFile, match=r"mi300x\.yaml, line 1"):
        bill([FLEET], FLEET)


def test_a_period_with_missing_requests_is_refused(tmp_path: Path) -> None:
    """Attack: a bill of 300 of 1,336 requests looked like any other."""
    gap = {"version": 3, "gap": {"from_unix_s": BEGUN_S + 100, "to_unix_s": BEGUN_S + 200, "lost": 7}}
    path = written(tmp_path, gap)
    with pytest.raises(UsageError, match=r"lacks 7 requests .*--to .*--from") as refused:
        bill([path], FLEET, start="2026-11-01", end="2026-11-01T01:00")
    assert "\n" not in str(refused.value)
    assert bill([path], FLEET, start="2026-11-01T00:30", end="2026-11-01T01:00").invoice.rent_usd > 0
