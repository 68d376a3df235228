"""A picker's door stays open although nobody holds it, and says so by answering through it."""

import asyncio
import gc
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("httptools", reason='the gateway is an extra: pip install "penstock[gateway]"')

import uvloop

from desks import Clock, desk_of, fleet
from penstock.gateway.doors.authz import AuthzDoor
from penstock.gateway.doors.process import show_life
from penstock.gateway.state.tables import PICKER_STATE


def test_a_door_nobody_has_come_through_is_open_after_its_garbage_is_collected(tmp_path: Path) -> None:
    """uvloop closes Unix servers that nobody holds: a fleet read again before the first request shut pickers off."""

    async def scene() -> bool:
        door = AuthzDoor(desk_of(fleet(), Clock())[0], 0)
        await door.start(tmp_path / "picker.sock")
        gc.collect()
        await asyncio.sleep(0.05)
        answered = await door.answers()
        await door.stop(0.0)
        return answered

    assert uvloop.run(scene())


def test_a_picker_whose_socket_is_gone_gives_no_sign_of_life(tmp_path: Path) -> None:
    async def scene() -> tuple[float, float, float]:
        path, states = tmp_path / "picker.sock", np.zeros(1, PICKER_STATE)
        door = AuthzDoor(desk_of(fleet(), Clock())[0], 0)
        await door.start(path)
        life = asyncio.create_task(show_life(door, states, 0))
        await asyncio.sleep(0.3)
        first = float(states["alive_s"][0])
        path.unlink()
        await asyncio.sleep(0.4)
        then = float(states["alive_s"][0])
        await asyncio.sleep(0.8)
        life.cancel()
        await door.stop(0.0)
        return first, then, float(states["alive_s"][0])

    first, then, last = uvloop.run(scene())
    assert first > 0
    assert then == last
