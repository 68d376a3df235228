"""Each choice of a response is a sequence in the engine."""

import asyncio
import json
from collections import Counter
from typing import Any

import pytest

from emulated import MODEL, STEP_S, ask, chat, during


def events(body: bytes) -> list[dict[str, Any]]:
    """Read the events of a stream; chunks of HTTP end where events do."""
    lines = [line for line in body.split(b"\r\n") if line.startswith(b"data: ")]
    pieces = [piece.removeprefix(b"data: ") for line in lines for piece in line.split(b"\n\n") if piece]
    assert pieces[-1] == b"[DONE]"
    return [json.loads(piece) for piece in pieces[:-1]]


def value(page: str, name: str) -> float:
    return float(next(line for line in page.splitlines() if line.startswith(name)).split()[-1])


def test_n_choices_are_n_sequences_and_all_are_counted() -> None:
    async def script(port: int, control: int) -> None:
        prompt = "x" * 4000
        running = asyncio.create_task(ask(port, "/v1/chat/completions", chat(10, prompt=prompt) | {"n": 3}))
        await asyncio.sleep(0.1 + 5 * STEP_S)
        (shown,) = json.loads((await ask(control, "/")).body)
        assert shown["running"] == 3
        answer = json.loads((await running).body)
        assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
        assert all(choice["message"]["content"] == " penstock" * 10 for choice in answer["choices"])
        assert answer["usage"]["completion_tokens"] == 3 * 10
        page = (await ask(port, "/metrics")).body.decode()
        assert value(page, "vllm:generation_tokens_total") == 3 * 10
        assert value(page, "vllm:request_generation_tokens_count") == 3
        # The second and third find the prompt's full blocks, as vLLM's do.
        assert value(page, "vllm:prefix_cache_hits_total") == 2 * (answer["usage"]["prompt_tokens"] // 16 * 16)

    during(script)


def test_choices_are_streamed_by_index() -> None:
    async def script(port: int, control: int) -> None:
        del control
        more = {"n": 2, "stream_options": {"include_usage": True}}
        seen = events((await ask(port, "/v1/chat/completions", chat(4, stream=True) | more)).body)
        last = seen.pop()
        assert last["choices"] == []
        assert last["usage"]["completion_tokens"] == 2 * 4
        roles, texts, ends = Counter[int](), Counter[int](), Counter[int]()
        for event in seen:
            (choice,) = event["choices"]
            roles[choice["index"]] += "role" in choice["delta"]
            texts[choice["index"]] += choice["delta"].get("content") == " penstock"
            ends[choice["index"]] += choice["finish_reason"] == "length"
        assert roles == ends == {0: 1, 1: 1}
        assert texts == {0: 4, 1: 4}

    during(script, speed=10)


def test_continuous_usage_is_in_every_event() -> None:
    async def script(port: int, control: int) -> None:
        del control
        more = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
        seen = events((await ask(port, "/v1/chat/completions", chat(3, stream=True) | more)).body)
        counts = [event["usage"]["completion_tokens"] for event in seen]
        assert counts == [0, 1, 2, 3, 3]  # the role, three tokens, and the usage

    during(script, speed=10)


def test_every_text_of_a_list_has_its_choice() -> None:
    async def script(port: int, control: int) -> None:
        del control
        body = {"model": MODEL, "prompt": ["a" * 40, "b" * 80], "max_tokens": 3, "ignore_eos": True, "n": 2}
        answer = json.loads((await ask(port, "/v1/completions", body)).body)
        assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
        counts = {"prompt_tokens": 10 + 20, "completion_tokens": 4 * 3, "total_tokens": 30 + 12}
        assert answer["usage"] == {**counts, "prompt_tokens_details": {"cached_tokens": 0}}

    during(script, speed=10)


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_text_ends_the_answer(stream: bool) -> None:  # noqa: FBT001 - a row of the table
    async def script(port: int, control: int) -> None:
        del control
        got = await ask(port, "/v1/chat/completions", chat(10, stream=stream) | {"stop": ["k p"]})
        if stream:
            seen = [event["choices"][0] for event in events(got.body)]
            text, last = "".join(choice["delta"].get("content", "") for choice in seen), seen[-1]
        else:
            answer = json.loads(got.body)
            assert answer["usage"]["completion_tokens"] == 2
            (last,) = answer["choices"]
            text = last["message"]["content"]
        assert text == " penstoc"
        assert (last["finish_reason"], last["stop_reason"]) == ("stop", "k p")

    during(script, speed=10)


def test_several_choices_without_sampling_are_refused_by_vllm_alone() -> None:
    async def refused(port: int, control: int) -> None:
        del control
        got = await ask(port, "/v1/chat/completions", chat(2) | {"n": 2, "temperature": 0})
        assert got.status == 400
        assert b"n must be 1 when using greedy sampling" in got.body

    async def taken(port: int, control: int) -> None:
        del control
        assert (await ask(port, "/v1/chat/completions", chat(2) | {"n": 2, "temperature": 0})).status == 200

    during(refused, speed=10)
    during(taken, speed=10, engine="sglang")


def test_a_disconnect_aborts_all_choices() -> None:
    async def script(port: int, control: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        data = json.dumps(chat(500, stream=True) | {"n": 3}).encode()
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(data) + data)
        await reader.readuntil(b"penstock")
        writer.close()
        await asyncio.sleep(0.2)
        (shown,) = json.loads((await ask(control, "/")).body)
        assert shown["running"] == 0
        page = (await ask(port, "/metrics")).body.decode()
        assert f'finished_reason="abort",model_name="{MODEL}"}} 3.0' in page

    during(script)
