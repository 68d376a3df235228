"""An emulated engine sleeps and wakes as vLLM does, with the times of its level, and loses no later request."""

import asyncio
import json

import pytest

from emulated import STEP_S, ask, chat, during

CHAT = "/v1/chat/completions"


async def is_asleep(port: int) -> bool:
    return bool(json.loads((await ask(port, "/is_sleeping")).body)["is_sleeping"])


@pytest.mark.parametrize(("level", "sleep_s", "wake_s"), [(1, 0.2, 0.3), (2, 0.05, 0.6)])
def test_a_level_takes_its_times(level: int, sleep_s: float, wake_s: float) -> None:
    async def script(port: int, control: int) -> None:
        del control
        assert not await is_asleep(port)
        slept = await ask(port, f"/sleep?level={level}", {})
        assert slept.status == 200
        assert sleep_s <= slept.seconds < sleep_s + 0.4
        assert await is_asleep(port)
        woken = await ask(port, "/wake_up", {})
        assert wake_s <= woken.seconds < wake_s + 0.4
        assert not await is_asleep(port)
        assert (await ask(port, CHAT, chat(3))).status == 200

    during(script)


def test_a_request_that_arrives_during_sleep_waits_for_the_wake() -> None:
    async def script(port: int, control: int) -> None:
        del control
        await ask(port, "/sleep", {})
        asked = asyncio.create_task(ask(port, CHAT, chat(5)))
        await asyncio.sleep(0.2)
        assert not asked.done()
        await ask(port, "/wake_up", {})
        got = await asked
        assert json.loads(got.body)["usage"]["completion_tokens"] == 5
        assert got.seconds >= 0.2 + 0.3

    during(script)


@pytest.mark.parametrize("stream", [False, True])
def test_sleep_aborts_running_requests(*, stream: bool) -> None:
    async def script(port: int, control: int) -> None:
        del control
        asked = asyncio.create_task(ask(port, CHAT, chat(200, stream=stream)))
        await asyncio.sleep(10 * STEP_S)
        await ask(port, "/sleep", {})
        got = await asked
        assert got.whole
        assert b'"finish_reason": "abort"' in got.body

    during(script)


def test_sleep_can_wait_for_running_requests() -> None:
    async def script(port: int, control: int) -> None:
        del control
        asked = asyncio.create_task(ask(port, CHAT, chat(20)))
        await asyncio.sleep(5 * STEP_S)
        slept = await ask(port, "/sleep?mode=wait", {})
        assert asked.done()
        assert json.loads((await asked).body)["usage"]["completion_tokens"] == 20
        assert slept.seconds >= 0.2
        assert await is_asleep(port)

    during(script)


def test_parts_wake_one_after_the_other() -> None:
    async def script(port: int, control: int) -> None:
        del control
        await ask(port, "/sleep", {})
        assert (await ask(port, "/wake_up?tags=weights", {})).seconds >= 0.3
        assert await is_asleep(port)
        assert (await ask(port, "/wake_up?tags=kv_cache", {})).seconds < 0.3
        assert not await is_asleep(port)

    during(script)


def test_engines_have_their_own_paths() -> None:
    async def of_vllm(port: int, control: int) -> None:
        del control
        assert (await ask(port, "/sleep?level=7", {})).status == 400
        assert (await ask(port, "/sleep?mode=keep", {})).status == 400
        assert (await ask(port, "/sleep")).status == 405
        assert (await ask(port, "/release_memory_occupation", {})).status == 404

    async def of_sglang(port: int, control: int) -> None:
        del control
        assert (await ask(port, "/sleep", {})).status == 404
        asked = asyncio.create_task(ask(port, CHAT, chat(20)))
        await asyncio.sleep(5 * STEP_S)
        assert (await ask(port, "/release_memory_occupation", {})).status == 400
        await asked
        assert (await ask(port, "/release_memory_occupation", {})).status == 200
        assert (await ask(port, "/resume_memory_occupation", {})).seconds >= 0.3
        assert (await ask(port, CHAT, chat(3))).status == 200

    during(of_vllm)
    during(of_sglang, engine="sglang")
