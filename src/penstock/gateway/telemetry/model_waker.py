"""Wakes the models of a shared device that requests wait for, and puts others to sleep if memory is short.

One task per device changes one model at a time, so a model is never woken twice at once. An endpoint is asked to sleep
only after the pickers have stopped sending to it and its engine reports no work. A request that still reaches an
engine that sleeps waits there, and its model is woken for it.
"""

import asyncio
import logging
import time
from typing import Final

from penstock.gateway.state.addresses import split_address
from penstock.gateway.state.routed_device import RoutedDevice, SharingEndpoint
from penstock.gateway.state.routed_fleet import RoutedFleet
from penstock.gateway.state.shared_tables import begin_write, end_write
from penstock.gateway.telemetry.engine_metrics import read_page
from penstock.routing.model_residency import (
    ASLEEP,
    AWAKE,
    RATE_WINDOW_S,
    WAKING,
    harm_per_byte,
    rate_now_per_s,
    ready_in_s,
)
from penstock.routing.records import Records

log = logging.getLogger(__name__)
_LOOK_EVERY_S: Final = 0.05
_SETTLE_S: Final = 0.15
"""Seconds after which every picker has read a changed report."""
_TIMEOUT_S: Final = 120.0
_RETRY_S: Final = 1.0
_PATHS: Final = {
    "vllm": ("/sleep?level=1&mode=wait", "/wake_up"),
    "sglang": ("/release_memory_occupation", "/resume_memory_occupation"),
}
"""Paths that put an engine to sleep, with its weights in host memory, and wake it."""


class ResidentModel:
    """Whether the model of one endpoint is awake, as far as the gateway knows."""

    def __init__(self, facts: SharingEndpoint, *, asleep: bool) -> None:
        self.facts = facts
        self.asleep = asleep
        self.draining = False
        self.awake_s = 0.0
        """Time at which a wake in progress is expected to end; 0 if none is."""
        self.wanted_s: float | None = None
        """Time since when requests wait for the model."""
        self.picked, self.rate_per_s, self.used_at_s = 0, 0.0, time.monotonic()

    @property
    def residency(self) -> int:
        """ASLEEP, WAKING or AWAKE. A model that drains will sleep, so it counts as asleep."""
        if self.awake_s:
            return WAKING
        return ASLEEP if self.asleep or self.draining else AWAKE

    def observe(self, *, asleep: bool) -> None:
        """Record what the engine says, unless the gateway is changing it."""
        if self.residency in {ASLEEP, AWAKE} and not self.draining:
            self.asleep = asleep

    def count_picks(self, picked: int, now_s: float) -> None:
        """Update the arrival rate of the model from the number of all requests so far."""
        if picked > self.picked:
            rate = rate_now_per_s(self.rate_per_s, self.used_at_s, now_s)
            self.rate_per_s, self.used_at_s = rate + (picked - self.picked) / RATE_WINDOW_S, now_s
        self.picked = picked

    def harm(self, now_s: float) -> float:
        """Return the missed requests per second and byte if the model slept."""
        rate, one = rate_now_per_s(self.rate_per_s, self.used_at_s, now_s), self.facts
        return harm_per_byte(rate, one.wake_s, one.patience_s, one.swap_bytes)


class ModelWaker:
    """The models of one shared device."""

    def __init__(self, device: RoutedDevice, fleet: RoutedFleet, reports: Records, counts: Records) -> None:
        self._device, self._fleet, self._reports, self._counts = device, fleet, reports, counts
        self._link_free_s = 0.0
        self.models = {
            one.endpoint: ResidentModel(one, asleep=bool(reports["asleep"][one.endpoint])) for one in device.members
        }

    async def run(self) -> None:
        """Look for requests that wait for a model, and bring in the model that is wanted longest."""
        while True:
            now_s = time.monotonic()
            for index, model in self.models.items():
                model.count_picks(int(self._counts["picked"][:, index].sum()), now_s)
                wanted = model.asleep and (model.facts.kept_awake or self._work(index) > 0)
                model.wanted_s = (model.wanted_s or now_s) if wanted else None
            self._publish()
            wanted_by = [(model.wanted_s, index) for index, model in self.models.items() if model.wanted_s is not None]
            if wanted_by and not await self._bring_in(min(wanted_by)[1]):
                await asyncio.sleep(_LOOK_EVERY_S)
            await asyncio.sleep(_LOOK_EVERY_S)

    def _work(self, index: int) -> int:
        """Return the requests at an endpoint, of all pickers and, if Envoy chose by weight, of Envoy."""
        row = self._reports[index]
        return int(max(self._counts["in_flight"][:, index].sum(), row["active"], row["running"] + row["waiting"]))

    def _publish(self) -> None:
        """Write into the reports which models are awake, and when the others will be."""
        now_s = time.monotonic()
        for index, model in self.models.items():
            wait_s = ready_in_s(model.residency, model.facts.wake_s, model.awake_s, self._link_free_s, now_s)
            if model.residency != AWAKE:
                wait_s = max(wait_s, 1e-3)
            row = self._reports[index]
            if (bool(row["asleep"]), float(row["ready_in_s"])) != (model.asleep, wait_s):
                begin_write(self._reports, index)
                self._reports["asleep"][index], self._reports["ready_in_s"][index] = model.asleep, wait_s
                end_write(self._reports, index)

    async def _bring_in(self, index: int) -> bool:
        """Make room for a model and wake it. Return whether it is awake."""
        wanted = self.models[index]
        while self._free_bytes() < wanted.facts.swap_bytes:
            victim = self._victim(index)
            if victim is None or not await self._put_to_sleep(victim):
                return False
        return await self._wake(index)

    def _free_bytes(self) -> int:
        models = self.models.values()
        taken = sum(one.facts.asleep_bytes + (0 if one.asleep else one.facts.swap_bytes) for one in models)
        return self._device.capacity_bytes - taken

    def _victim(self, wanted: int) -> int | None:
        """Return the endpoint that should sleep: one without work if there is any, else one that must drain first.

        With `least-harm`, a model with work drains only if more requests wait for the wanted model than would wait for
        it, or if they have waited for two swaps.
        """
        now_s, by_harm = time.monotonic(), self._device.eviction == "least-harm"
        awake = [index for index, one in self.models.items() if not one.asleep and not one.facts.kept_awake]
        if not awake:
            return None
        idle = [index for index in awake if self._work(index) == 0]
        best = min(
            idle or awake,
            key=lambda index: self.models[index].harm(now_s) if by_harm else self.models[index].used_at_s,
        )
        if idle or not by_harm:
            return best
        one, asked = self.models[best], self.models[wanted]
        away_s = one.facts.sleep_s + asked.facts.wake_s + one.facts.wake_s
        would_wait = rate_now_per_s(one.rate_per_s, one.used_at_s, now_s) * away_s
        patient = now_s - (asked.wanted_s or now_s) < 2 * self._device.swap_s
        return None if patient and self._work(wanted) <= would_wait else best

    async def _put_to_sleep(self, index: int) -> bool:
        """Let an endpoint finish its requests, and put it to sleep. Return whether it sleeps."""
        model = self.models[index]
        model.draining = True
        self._publish()
        try:
            await asyncio.sleep(_SETTLE_S)
            while not await self._is_idle(index):  # noqa: ASYNC110 - the engine sends no event
                await asyncio.sleep(_LOOK_EVERY_S)
            model.asleep = await self._order(index, 0)
        finally:
            model.draining = False
            self._publish()
        return model.asleep

    async def _is_idle(self, index: int) -> bool:
        status, page = await _ask(self._fleet.addresses[index], "GET", "/metrics")
        report = read_page(page) if status == 200 else None
        return report is None or report.running + report.waiting == 0

    async def _wake(self, index: int) -> bool:
        """Wake a model, and let the pickers send it the requests that wait before another model is brought in."""
        model, begun_s = self.models[index], time.monotonic()
        model.awake_s = self._link_free_s = begun_s + model.facts.wake_s
        self._publish()
        try:
            done = await self._order(index, 1)
        finally:
            model.awake_s = 0.0
        if done:
            model.asleep, model.wanted_s = False, None
            begin_write(self._reports, index)
            self._reports["wakes"][index] += 1
            self._reports["wake_s"][index] += time.monotonic() - begun_s
            end_write(self._reports, index)
        self._publish()
        await asyncio.sleep(_SETTLE_S if done else _RETRY_S)
        return done

    async def _order(self, index: int, place: int) -> bool:
        """Ask an engine to sleep (0) or to wake (1). Return whether it did."""
        path, address = _PATHS[self._fleet.engines[index]][place], self._fleet.addresses[index]
        status, body = await _ask(address, "POST", path)
        if status != 200:
            log.warning("%s answered %s to %s: %s", address, status or "nothing", path, body[:200].decode("latin-1"))
        return status == 200


async def _ask(address: str, method: str, path: str) -> tuple[int, bytes]:
    """Send one request without a body. The status is 0 if there is no valid answer."""
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(*split_address(address), limit=2**17)
            try:
                head = f"{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                writer.write(head.encode())
                answer = await reader.read(2**22)
                while piece := await reader.read(2**22):
                    answer += piece
            finally:
                writer.close()
        top, _, body = answer.partition(b"\r\n\r\n")
        return int(top[9:12]), body
    except (OSError, TimeoutError, ValueError):
        return 0, b""
