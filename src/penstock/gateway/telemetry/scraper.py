"""Scrapes the health and load of all endpoints. Busy endpoints are scraped more often than idle endpoints."""

import asyncio
import gc
import json
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np
import uvloop

from penstock.errors import UsageError
from penstock.gateway.envoy.clusters import model_endpoints
from penstock.gateway.envoy.health_routes import READY_FILE, ready_endpoints
from penstock.gateway.envoy_admin import open_requests, stats
from penstock.gateway.inside_envoy.ended_reader import EndedReader
from penstock.gateway.inside_envoy.learner import LengthLearner, serves_module
from penstock.gateway.state.addresses import addresses_of, split_address
from penstock.gateway.state.outcome_socket import OutcomeInbox
from penstock.gateway.state.routed_fleet import RoutedFleet
from penstock.gateway.state.shared_tables import (
    CLIENTS,
    COUNTS,
    PICKER_STATE,
    REPORT,
    EndpointTables,
    begin_write,
    carry_over,
    end_write,
    shared_array,
)
from penstock.gateway.telemetry.autoscaling import DECIDE_EVERY_S, DesiredReplicas
from penstock.gateway.telemetry.bypass_detector import BypassDetector
from penstock.gateway.telemetry.gateway_metrics import lost_lines, metrics_page, pickers_up
from penstock.gateway.telemetry.model_waker import ModelWaker
from penstock.gateway.telemetry.scraped_endpoint import ScrapedEndpoint
from penstock.gateway.telemetry.served_model import ServedModel
from penstock.gateway.telemetry.usage_metrics import UsageMetrics
from penstock.http_server import Exchange, HttpConnection
from penstock.prometheus_text import CONTENT_TYPE
from penstock.routing.records import Records

log = logging.getLogger(__name__)
_BUSY_S, _IDLE_S = 0.1, 1.0
"""Seconds between two scrapes of a busy endpoint, and seconds between two scrapes of an idle endpoint."""
_SCRAPE_S: Final = 5e-4
"""Processor seconds that one scrape takes.

The endpoints of a large fleet are scraped less often, so that the scraper needs only one core.
"""
_ACTIVE_EVERY_S: Final = 1.0
_PATIENCE_S: Final = 30.0
"""Seconds after which a connection to the metrics page ends if it sends no whole request."""
_NAMES_EVERY_S: Final = 3.0
ENVOY_COUNTERS: Final = {
    "http.clients.downstream_rq_total": "penstock_requests_total",
    "http.clients.downstream_rq_active": "penstock_active_requests",
    "http.clients.downstream_rq_2xx": "penstock_requests_2xx_total",
    "http.clients.downstream_rq_4xx": "penstock_requests_4xx_total",
    "http.clients.downstream_rq_5xx": "penstock_requests_5xx_total",
    "http.clients.ext_proc.failure_mode_allowed": "penstock_fallback_requests_total",
}
"""Mapping from the names of Envoy's counters to their metric names on the gateway's metrics page."""
_ENVOY_PATTERN: Final = f"^({'|'.join(name.replace('.', '[.]') for name in ENVOY_COUNTERS)})$"


class Scraper:
    """Scraper of one gateway, for all endpoints of the current fleet."""

    _fleet: RoutedFleet
    _reports: Records
    _counts: Records

    def __init__(self, folder: Path, pickers: int) -> None:
        self._folder, self._pickers = folder, pickers
        self._tasks: list[asyncio.Task[None]] = []
        self._endpoints: list[ScrapedEndpoint] = []
        self._envoy: dict[str, float] = {}
        self._states = shared_array(folder / "pickers.table", PICKER_STATE, (pickers,))
        self._clients = shared_array(folder / "clients.table", CLIENTS, (1,))
        self._desired: DesiredReplicas | None = None
        self._bypass_detector = BypassDetector()
        self._inside = serves_module(folder)
        self.usage = UsageMetrics()
        self._ended = EndedReader(folder, pickers, self.usage.add) if self._inside else None

    def start(self) -> None:
        """Read the current fleet and start scraping its endpoints. Stop scraping the previous fleet."""
        self.stop()
        gc.collect()  # collect exception cycles of failed connections: they keep the old fleet's tables mapped
        fleet = RoutedFleet.read(self._folder / "fleet.bin")
        generation, count = fleet.generation, len(fleet.addresses)
        reports = shared_array(self._folder / f"reports-{generation}.table", REPORT, (count,))
        counts = shared_array(self._folder / f"counts-{generation}.table", COUNTS, (self._pickers, count))
        if self._endpoints and not self._inside:  # else the supervisor has copied them
            carry_over(
                self._fleet.addresses,
                EndpointTables(self._reports, self._counts),
                fleet.addresses,
                EndpointTables(reports, counts),
            )
        reports["sequence"] += reports["sequence"] % 2  # a scraper that was killed may have left a row half written
        self._fleet, self._reports, self._counts = fleet, reports, counts
        endpoints = [
            ScrapedEndpoint(index, address, reports, _served_model(fleet, index))
            for index, address in enumerate(fleet.addresses)
        ]
        self._endpoints = endpoints
        self._tasks = [asyncio.create_task(self._watch(one, counts[:, index])) for index, one in enumerate(endpoints)]
        self._tasks.append(asyncio.create_task(self._update_envoy(fleet, endpoints)))
        self._tasks.append(asyncio.create_task(self._count_active(fleet, reports)))
        if self._ended is not None:
            learner = LengthLearner(self._folder, fleet, EndpointTables(reports, counts))
            self._ended.use(fleet, reports)
            self._tasks += [asyncio.create_task(learner.run()), asyncio.create_task(self._ended.run())]
        self._tasks.append(asyncio.create_task(self.usage.run(fleet, counts)))
        for device in fleet.devices:
            waker = ModelWaker(device, fleet, reports, counts)
            for index, model in waker.models.items():
                if fleet.engines[index] == "vllm":  # SGLang has no such path, so only the gateway's own orders count
                    endpoints[index].resident = model
            self._tasks.append(asyncio.create_task(waker.run()))
        if self._desired is None or self._desired.kinds != fleet.kinds:
            self._desired = DesiredReplicas(fleet)
        if fleet.followed:
            self._tasks.append(asyncio.create_task(self._follow(fleet)))
        self._tasks.append(asyncio.create_task(self._decide_replicas(fleet, self._desired)))

    def stop(self) -> None:
        """Stop scraping and close all connections."""
        for task in self._tasks:
            task.cancel()
        for one in self._endpoints:
            one.close()

    def close(self) -> None:
        """Stop, and write the last receipts."""
        self.stop()
        if self._ended is not None:
            self._ended.close()

    async def _watch(self, one: ScrapedEndpoint, counts: Records) -> None:
        while True:
            begun_s = time.monotonic()
            busy = await one.scrape()
            in_flight = int(np.sum(counts["in_flight"]))
            soon_s = max(_BUSY_S, _SCRAPE_S * len(self._fleet.addresses))
            pause_s = soon_s if busy or in_flight or not one.healthy else max(_IDLE_S, soon_s)
            # Sleep in short intervals, because a request that is sent meanwhile makes another scrape worthwhile.
            while time.monotonic() - begun_s < pause_s:
                await asyncio.sleep(min(soon_s, pause_s))
                if int(np.sum(counts["in_flight"])) > 0:
                    break

    async def _update_envoy(self, fleet: RoutedFleet, endpoints: list[ScrapedEndpoint]) -> None:
        """Rewrite the files with Envoy's fallback endpoints and the gateway's readiness when their content changes."""
        written: list[bool] | None = None
        written_ready: bool | None = None
        while True:
            ready = any_ready(endpoints)
            if ready is not None and ready != written_ready:
                written_ready = ready
                write_json(self._folder / READY_FILE, ready_endpoints(ready=ready))
            healthy = [one.healthy for one in endpoints]
            if healthy != written:
                written = healthy
                for number in range(len(fleet.names)):
                    listing = model_endpoints(fleet, number, healthy)
                    write_json(self._folder / "xds" / f"eds-{number}.json", listing)
            await asyncio.sleep(_BUSY_S)

    async def _follow(self, fleet: RoutedFleet) -> None:
        """Resolve DNS names periodically. If addresses changed, signal the supervisor, which reloads the fleet."""
        while True:
            await asyncio.sleep(_NAMES_EVERY_S)
            try:
                lookups = [asyncio.to_thread(addresses_of, endpoint) for endpoint in fleet.followed]
                resolved = {address for addresses in await asyncio.gather(*lookups) for address in addresses}
            except UsageError:
                continue  # no DNS server answered, so keep the known addresses
            if resolved and resolved != set(fleet.addresses):
                (self._folder / "names.moved").touch()

    async def _decide_replicas(self, fleet: RoutedFleet, desired: DesiredReplicas) -> None:
        """Update the desired replicas periodically."""
        desired.begin(fleet, self._counts, self._states, time.monotonic())
        while True:
            await asyncio.sleep(DECIDE_EVERY_S)
            desired.decide(self._reports, self._counts, self._states, time.monotonic())

    def answer(self, exchange: Exchange) -> None:
        """Reply with the metrics page of the gateway, or with 404 for any other path."""
        if exchange.method != b"GET" or exchange.path.partition(b"?")[0] not in {b"/metrics", b"/"}:
            exchange.reply(404, b"")
            return
        desired = self._desired or DesiredReplicas(self._fleet)
        tables = self._reports, self._counts, self._states
        lost = self._states["lost_outcomes"].sum() if self._ended is None else self._ended.lost
        page = metrics_page(self._fleet, *tables, self._envoy, desired, [*self.usage.lines(), *lost_lines(int(lost))])
        exchange.reply(200, page, CONTENT_TYPE)

    async def _count_active(self, fleet: RoutedFleet, reports: Records) -> None:
        """Periodically record how many requests Envoy has open, of all clients and at each endpoint.

        Pickers compare Envoy's numbers with their own counts of requests in flight.
        """
        index_of = {address: index for index, address in enumerate(fleet.addresses)}
        admin = str(self._folder / "admin.sock")
        while True:
            await asyncio.sleep(_ACTIVE_EVERY_S)
            active = await asyncio.to_thread(open_requests, admin)
            counters = await asyncio.to_thread(stats, admin, _ENVOY_PATTERN)
            if active is None or not counters:
                continue
            now_s, self._envoy = time.monotonic(), {ENVOY_COUNTERS[name]: value for name, value in counters.items()}
            if self._inside:  # Envoy answers, so its worker threads do
                self._states["alive_s"] = now_s
            self._clients["open"], self._clients["counted_s"] = self._envoy["penstock_active_requests"], now_s
            self._detect_bypass(now_s)
            for address, count in active.items():
                if address in index_of:
                    index = index_of[address]
                    begin_write(reports, index)
                    reports["active"][index] = count
                    end_write(reports, index)

    def _detect_bypass(self, now_s: float) -> None:
        up, bypassed = pickers_up(self._states, now_s), self._envoy.get("penstock_fallback_requests_total", 0.0)
        message = self._bypass_detector.compare(bypassed, float(self._states["decisions"].sum()), sum(up), len(up))
        if message is not None:
            log.warning(message)


def any_ready(endpoints: Sequence[ScrapedEndpoint]) -> bool | None:
    """Return whether any endpoint is up, or None while this is unknown, because some endpoints were never scraped."""
    if any(one.healthy for one in endpoints if one.scraped):
        return True
    return False if all(one.scraped for one in endpoints) else None


def _served_model(fleet: RoutedFleet, index: int) -> ServedModel:
    names, checked = frozenset(fleet.names), fleet.engines[index] == "vllm"
    return ServedModel(fleet.addresses[index], fleet.served[index], names, checks_names=checked)


def write_json(path: Path, value: object) -> None:
    """Write a JSON file atomically, so that a process that watches the file never reads incomplete content.

    Several processes may write the same file at the same time.
    """
    partial = path.with_suffix(f".{os.getpid()}.partial")
    partial.write_text(json.dumps(value), encoding="utf-8")
    partial.replace(path)


def _raise_file_limit() -> None:
    """Allow as many open files as the kernel lets this process have: each endpoint and each client takes one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # macOS has another limit of its own
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _run(folder: Path, pickers: int, metrics: str) -> None:
    scraper = Scraper(folder, pickers)
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGHUP, scraper.start)
    scraper.start()
    inbox = OutcomeInbox(folder, scraper.usage.add)
    loop.add_reader(inbox, inbox.read)
    if metrics:
        await loop.create_server(
            lambda: HttpConnection(scraper.answer, patience_s=_PATIENCE_S), *split_address(metrics)
        )
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    alive = folder / "scraper.alive"
    while not stopped.is_set():
        alive.touch()
        try:
            await asyncio.wait_for(stopped.wait(), _ACTIVE_EVERY_S / 2)
        except TimeoutError:
            continue
    scraper.close()


def main(arguments: list[str]) -> None:
    """Run the scraper. The arguments are the gateway's folder, the number of pickers, and the metrics address."""
    folder, pickers, metrics = arguments
    _raise_file_limit()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor stops this process
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(Path(folder), int(pickers), metrics))


if __name__ == "__main__":
    main(sys.argv[1:])
