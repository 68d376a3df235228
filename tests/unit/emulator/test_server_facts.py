"""An emulated server says what a real one says about its version, setup and tokens, and empties its cache."""

import json

import pytest

from emulated import MODEL, ask, chat, during


def test_vllm_says_its_version_and_the_type_of_its_cache() -> None:
    async def script(port: int, control: int) -> None:
        del control
        assert json.loads((await ask(port, "/version")).body) == {"version": "0.32.0"}
        page = (await ask(port, "/metrics")).body.decode()
        assert 'cache_dtype="bf16"' in page
        assert 'enable_prefix_caching="True"' in page
        assert (await ask(port, "/server_info")).status == 404

    during(script)


@pytest.mark.parametrize("path", ["/server_info", "/get_server_info"])
def test_sglang_says_its_setup(path: str) -> None:
    async def script(port: int, control: int) -> None:
        del control
        said = json.loads((await ask(port, path)).body)
        assert (said["version"], said["kv_cache_dtype"], said["tp_size"]) == ("0.32.0", "bf16", 1)
        assert said["max_total_num_tokens"] == 200 * 16
        assert not said["disable_radix_cache"]
        assert json.loads((await ask(port, "/model_info")).body)["model_path"] == MODEL
        assert (await ask(port, "/version")).status == 404

    during(script, engine="sglang")


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_tokens_of_messages_are_those_that_usage_counts(engine: str) -> None:
    async def script(port: int, control: int) -> None:
        del control
        body = chat(3, prompt="a question of some length")
        said = json.loads((await ask(port, "/tokenize", body)).body)
        used = json.loads((await ask(port, "/v1/chat/completions", body)).body)["usage"]
        assert said["count"] == len(said["tokens"]) == used["prompt_tokens"]
        other = json.loads((await ask(port, "/tokenize", chat(3, prompt="another question, of that"))).body)
        assert other["tokens"] != said["tokens"]
        assert (await ask(port, "/tokenize", {"prompt": 3})).status == 400

    during(script, engine=engine, speed=10)


@pytest.mark.parametrize(("engine", "path"), [("vllm", "/reset_prefix_cache"), ("sglang", "/flush_cache")])
def test_cached_tokens_are_counted_until_the_cache_is_emptied(engine: str, path: str) -> None:
    async def script(port: int, control: int) -> None:
        del control

        async def cached() -> int:
            got = await ask(port, "/v1/chat/completions", chat(2, prompt="word " * 100))
            return int(json.loads(got.body)["usage"]["prompt_tokens_details"]["cached_tokens"])

        assert await cached() == 0
        assert await cached() > 64
        assert (await ask(port, path, {})).status == 200
        assert await cached() == 0

    during(script, engine=engine, speed=10)


def test_the_last_token_of_vllm_has_the_finish_reason_and_sglangs_chat_ends_apart() -> None:
    counts = {}
    for engine in ("vllm", "sglang"):

        async def script(port: int, control: int, engine: str = engine) -> None:
            del control
            got = await ask(port, "/v1/chat/completions", chat(4, stream=True))
            events = [json.loads(line[6:]) for line in got.body.split(b"\n") if line.startswith(b"data: {")]
            counts[engine] = len(events)
            assert got.whole
            assert b"data: [DONE]" in got.body.rpartition(b"finish_reason")[2]
            assert got.body.count(b"0\r\n\r\n") == 1
            assert events[-1]["choices"][0]["finish_reason"] == "length"
            assert bool(events[-1]["choices"][0]["delta"].get("content")) is (engine == "vllm")

        during(script, engine=engine, speed=10)
    assert counts == {"vllm": 1 + 4, "sglang": 1 + 4 + 1}
