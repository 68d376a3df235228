"""Emulated endpoints answer with the model's latencies, and fail on command."""

import asyncio
import json

import pytest

from emulated import MODEL, STEP_S, ask, chat, during


def test_an_answer_takes_its_steps() -> None:
    async def script(port: int, control: int) -> None:
        del control
        got = await ask(port, "/v1/chat/completions", chat(10))
        answer = json.loads(got.body)
        assert answer["usage"]["completion_tokens"] == 10
        assert answer["choices"][0]["finish_reason"] == "length"
        # One step with the prompt gives the first token, nine more give the rest.
        assert got.seconds == pytest.approx(10 * STEP_S, abs=0.1)
        assert got.seconds >= 10 * STEP_S

    during(script)


def test_speed_divides_the_duration() -> None:
    async def script(port: int, control: int) -> None:
        del control
        got = await ask(port, "/v1/chat/completions", chat(100))
        assert 100 * STEP_S / 10 <= got.seconds < 100 * STEP_S / 2

    during(script, speed=10)


def test_a_stream_has_one_event_per_token_and_an_end() -> None:
    async def script(port: int, control: int) -> None:
        del control
        body = chat(5, stream=True) | {"stream_options": {"include_usage": True}}
        got = await ask(port, "/v1/chat/completions", body)
        assert got.whole
        assert got.body.count(b'"content": " penstock"') == 5
        assert b'"completion_tokens": 5' in got.body
        assert b"data: [DONE]" in got.body
        text = await ask(
            port, "/v1/completions", {"model": MODEL, "prompt": [1, 2, 3], "max_tokens": 2, "stream": True}
        )
        assert text.whole
        assert b"[DONE]" in text.body

    during(script, speed=10)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/chat/completions", {"model": MODEL}, 400),
        ("/v1/chat/completions", chat(4000), 400),
        ("/v1/chat/completions", chat(3, model="another"), 404),
        ("/v1/chat/completions", chat(3) | {"max_tokens": -1}, 400),
        ("/v1/completions", {"model": MODEL, "prompt": []}, 400),
        ("/v1/chat/completions", [1], 400),
        ("/v1/chat/completions", {key: value for key, value in chat(3).items() if key != "model"}, 200),
        ("/v1/chat/completions", None, 405),
        ("/v1/embeddings", {"input": "x"}, 404),
        ("/metrics", {}, 405),
        ("/nothing", None, 404),
        ("/health", None, 200),
        ("/v1/models", None, 200),
    ],
)
def test_impossible_requests_are_rejected_as_engines_do(path: str, body: object, status: int) -> None:
    async def script(port: int, control: int) -> None:
        del control
        assert (await ask(port, path, body)).status == status

    during(script)


def test_metrics_count_what_is_running_and_what_was_found_in_the_cache() -> None:
    async def script(port: int, control: int) -> None:
        del control
        prompt = "x" * 4000
        await ask(port, "/v1/chat/completions", chat(2, prompt=prompt))
        running = asyncio.create_task(ask(port, "/v1/chat/completions", chat(20, prompt=prompt)))
        await asyncio.sleep(0.1)
        page = (await ask(port, "/metrics")).body.decode()
        assert f'vllm:num_requests_running{{engine="0",model_name="{MODEL}"}} 1.0' in page
        assert 'num_gpu_blocks="200"' in page
        hits = next(line for line in page.splitlines() if line.startswith("vllm:prefix_cache_hits_total"))
        assert float(hits.split()[-1]) > 900
        await running

    during(script)


def test_a_disconnect_frees_everything() -> None:
    async def script(port: int, control: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        data = json.dumps(chat(1000, stream=True)).encode()
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(data) + data)
        await reader.readuntil(b"penstock")
        writer.close()
        await asyncio.sleep(0.2)
        (shown,) = json.loads((await ask(control, "/")).body)
        assert shown["running"] == 0
        page = (await ask(port, "/metrics")).body.decode()
        assert f'finished_reason="abort",model_name="{MODEL}"}} 1.0' in page

    during(script)


def test_faults_come_and_go_on_command() -> None:
    async def script(port: int, control: int) -> None:
        async def fault(name: str, times: float = 1.0) -> None:
            told = {"endpoint": f"127.0.0.1:{port}", "fault": name, "times": times}
            assert (await ask(control, "/", told)).status == 200

        await fault("refuse")
        assert (await ask(port, "/v1/chat/completions", chat(2))).status == 503
        await fault("slow", 5)
        assert (await ask(port, "/v1/chat/completions", chat(4))).seconds >= 4 * 5 * STEP_S
        await fault("drop", 2)
        got = await ask(port, "/v1/chat/completions", chat(20, stream=True))
        assert not got.whole
        await fault("die")
        with pytest.raises(ConnectionRefusedError):
            await ask(port, "/health")
        await fault("hang")
        hung = asyncio.create_task(ask(port, "/health"))
        await asyncio.sleep(0.3)
        assert not hung.done()
        await fault("none")
        assert (await hung).status == 200
        assert (await ask(control, "/", {"endpoint": "nobody", "fault": "die"})).status == 400
        assert (await ask(control, "/", {"fault": "explode"})).status == 400

    during(script)


def test_lies_and_old_pages_hide_what_is_running() -> None:
    async def script(port: int, control: int) -> None:
        running = asyncio.create_task(ask(port, "/v1/chat/completions", chat(30)))
        await asyncio.sleep(0.1)
        await ask(control, "/", {"fault": "lie"})
        assert b"sglang:num_running_reqs" in (await ask(port, "/metrics")).body
        assert b'tp_rank="0"} 1.0\n# TYPE sglang:num_queue_reqs' not in (await ask(port, "/metrics")).body
        await ask(control, "/", {"fault": "stale"})
        before = (await ask(port, "/metrics")).body
        await running
        assert (await ask(port, "/metrics")).body == before

    during(script, engine="sglang")
