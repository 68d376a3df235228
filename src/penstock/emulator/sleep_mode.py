"""Emulates the sleep mode of an engine: `/sleep`, `/wake_up` and `/is_sleeping` of vLLM, and SGLang's equivalents.

vLLM serves these paths if it is started with `--enable-sleep-mode` and `VLLM_SERVER_DEV_MODE=1`. Before an engine
sleeps, its requests end with the finish reason `abort`, or with `mode=wait` they are served first. Requests that arrive
later wait until the engine is awake.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs

from penstock.errors import UsageError
from penstock.http_server import Exchange, error_body

_PARTS: Final = frozenset({"weights", "kv_cache"})
_LEVELS: Final = ("1", "2")
_MODES: Final = ("abort", "wait")


@dataclass(frozen=True, slots=True, kw_only=True)
class SleepTimes:
    """Engine seconds of a sleep and a wake, by level: 1 keeps weights in host memory, 2 discards them."""

    sleep_s: tuple[float, float]
    wake_s: tuple[float, float]
    """For level 2, the time to read the weights again. vLLM reads them in a separate call, `reload_weights`."""


NO_TIMES: Final = SleepTimes(sleep_s=(0.0, 0.0), wake_s=(0.0, 0.0))


class DeviceMemory:
    """Memory of a device that several emulated engines share."""

    def __init__(self, free_bytes: int) -> None:
        self.free_bytes = free_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryShare:
    """An engine's part of a shared device."""

    device: DeviceMemory
    swap_bytes: int
    """Bytes that the engine takes while it is awake, in addition to those that it keeps while it sleeps."""
    asleep: bool
    """Whether its model sleeps at the start."""


class SleepMode:
    """Whether an engine sleeps. `later` calls a function after a number of engine seconds.

    A wake fails if the engine's device is shared and has too little memory.
    """

    def __init__(
        self,
        times: SleepTimes,
        later: Callable[[float, Callable[[], None]], None],
        share: MemoryShare | None = None,
    ) -> None:
        self.asleep = asleep = share is not None and share.asleep
        """True from the start of a sleep to the end of the wake. No step begins in this time."""
        self._times, self._later, self._share = times, later, share
        self._level = 1 if asleep else 0
        self._holds_memory = not asleep
        self._awake_parts: set[str] = set()
        self._waiting: list[Callable[[], None]] = []
        """Sleeps that begin when the engine is idle."""

    def sleep(self, exchange: Exchange, *, idle: bool, abort: Callable[[], None], forget: Callable[[], None]) -> None:
        """Put the engine to sleep and reply when it sleeps.

        `abort` ends all requests, and `forget` empties the KV cache.
        """
        asked = parse_qs(exchange.path.partition(b"?")[2].decode("ascii", "replace"))
        try:
            level = int(_choice(asked, "level", _LEVELS))
            mode = _choice(asked, "mode", _MODES)
        except UsageError as error:
            exchange.reply(400, error_body(str(error), "BadRequestError", 400))
            return
        if self.asleep:
            exchange.reply(200, b"")
            return
        if mode == "abort":
            abort()

        def begin() -> None:
            self.asleep, self._level, self._awake_parts = True, level, set()
            forget()
            self._later(self._times.sleep_s[level - 1], lambda: self._fall_asleep(exchange))

        if idle or mode == "abort":
            begin()
        else:
            self._waiting.append(begin)

    def _fall_asleep(self, exchange: Exchange) -> None:
        if self._share is not None and self._holds_memory:
            self._share.device.free_bytes += self._share.swap_bytes
        self._holds_memory = False
        exchange.reply(200, b"")

    def _take_memory(self) -> bool:
        """Take the memory of an engine that is to be awake. Return whether the device had enough."""
        if self._share is not None and not self._holds_memory:
            if self._share.device.free_bytes < self._share.swap_bytes:
                return False
            self._share.device.free_bytes -= self._share.swap_bytes
        self._holds_memory = True
        return True

    def release(self, exchange: Exchange, *, idle: bool, forget: Callable[[], None]) -> None:
        """Release the memory of an SGLang server, which must be idle."""
        if not idle:
            message = "release_memory_occupation should be called only when server is idle."
            exchange.reply(400, error_body(message, "BadRequestError", 400))
            return
        self.sleep(exchange, idle=True, abort=forget, forget=forget)

    def begin_waiting(self) -> None:
        """Begin the sleeps that waited for the engine to be idle."""
        waiting, self._waiting = self._waiting, []
        for begin in waiting:
            begin()

    def wake(self, exchange: Exchange, resume: Callable[[], None]) -> None:
        """Wake the engine, or with `tags` a part of it, and reply when it is done. Then `resume` begins its steps."""
        tags = parse_qs(exchange.path.partition(b"?")[2].decode("ascii", "replace")).get("tags", [])
        parts = _PARTS & set(tags) if tags else _PARTS
        if self.asleep and not self._take_memory():
            exchange.reply(500, error_body("CUDA out of memory", "InternalServerError", 500))
            return
        seconds = self._times.wake_s[self._level - 1] if self.asleep and "weights" in parts - self._awake_parts else 0.0

        def done() -> None:
            self._awake_parts |= parts
            self.asleep = self.asleep and not self._awake_parts >= _PARTS
            exchange.reply(200, b"")
            resume()

        self._later(seconds, done)

    def state_body(self) -> bytes:
        """Return the body of vLLM's /is_sleeping."""
        return json.dumps({"is_sleeping": self.asleep}).encode()


def _choice(asked: Mapping[str, Sequence[str]], name: str, choices: Sequence[str]) -> str:
    """Return the value of a query parameter. The first choice is the default."""
    value = asked.get(name, choices)[0]
    if value not in choices:
        raise UsageError(f"{name} '{value[:20]}' is not emulated; use {' or '.join(choices)}")
    return value
