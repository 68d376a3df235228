"""Counters of endpoints that stay in the fleet never fall at a reload."""

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np

from gateway_fakes import Clock, body_fields, fleet, picker_of
from penstock.gateway.picker.picker import EndpointChoice
from penstock.gateway.picker.request_body import RequestHints
from penstock.gateway.state.shared_tables import COUNTS, REPORT, EndpointTables, carry_over
from penstock.gateway.telemetry.scraper import Scraper

COUNTED = ("picked", "ended", "failed", "moved", "prompt_bytes", "predicted_ttft_s")


def test_picker_counters_follow_endpoints_across_a_reload() -> None:
    clock = Clock()
    before, old = picker_of(fleet(4), clock)
    for turn in range(40):
        clock.now_s += 0.1
        named = before.decide(body_fields("ab"[turn % 2]), b"", RequestHints())
        assert isinstance(named, EndpointChoice)
        if turn % 4:
            before.state.end(named.ticket, "", 503 if turn % 8 == 1 else 200, "-", 1)
    before.state.tick()
    smaller = fleet(4)
    stay = [3, 2, 0]  # the second is gone
    smaller = replace(
        smaller,
        addresses=tuple(smaller.addresses[index] for index in stay),
        served=tuple(smaller.served[index] for index in stay),
        pools=("p",) * 3,
        engines=("vllm",) * 3,
        endpoints=smaller.endpoints[stay],
    )
    after, new = picker_of(smaller, clock)
    after.adopt(before)
    after.state.tick()
    assert old.counts["picked"].sum() == 40
    for name in (*COUNTED, "in_flight"):
        assert new.counts[name][0].tolist() == old.counts[name][0][stay].tolist(), name
    after.decide(body_fields("a"), b"", RequestHints())
    after.state.tick()
    assert new.states["decisions"][0] == 41
    assert new.counts["picked"].sum() == 41 - old.counts["picked"][0, 1]


def test_published_counters_never_fall_at_a_reload() -> None:
    then = EndpointTables(np.zeros(2, REPORT), np.zeros((2, 2), COUNTS))
    then.reports["scrapes"], then.reports["failures"], then.reports["sequence"] = (70, 50), (3, 0), 140
    then.counts["picked"], then.counts["in_flight"] = [[10, 20], [30, 40]], 5
    now = EndpointTables(np.zeros(2, REPORT), np.zeros((2, 2), COUNTS))
    now.counts["picked"][0] = [0, 12]  # the first picker has read it already, and has counted on
    carry_over(("a:1", "b:1"), then, ("c:1", "a:1"), now)
    assert now.counts["picked"].tolist() == [[0, 12], [0, 30]]
    assert now.counts["in_flight"].sum() == 0, "of these a picker that has not read it yet says nothing"
    assert now.reports["scrapes"].tolist() == [0, 70]
    assert now.reports["sequence"].tolist() == [0, 0], "nothing was heard of the new fleet yet"


def test_scrape_counters_continue_across_a_reload(tmp_path: Path) -> None:
    (tmp_path / "xds").mkdir()

    async def scene() -> list[int]:
        scraper, seen = Scraper(tmp_path, 1), []
        for generation in range(3):
            addresses = tuple(f"127.0.0.1:{port}" for port in (1, 2, 3, 4))  # nobody listens there
            replace(fleet(), generation=generation, addresses=addresses[:: 1 if generation % 2 else -1]).write(
                tmp_path / "fleet.bin"
            )
            scraper.start()
            seen.append(int(scraper._reports["scrapes"].min()))  # noqa: SLF001 - what its page shows
            await asyncio.sleep(0.5)
        scraper.stop()
        return seen

    first, second, third = asyncio.run(scene())
    assert first == 0 < second < third
