"""OpenAI's client over TLS, HTTP/1.1 and HTTP/2, in front of good and bad engines."""

import asyncio
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("httptools", reason='the gateway is an extra: pip install "penstock[gateway]"')

from typing import TYPE_CHECKING

import httpx2
import openai

from fake_engines import MODEL, FakeEngine, fake_engines
from gateway_stack import Running, running

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletionMessageParam

LARGEST = 8 * 2**20 - 2**16
SIZES = (1000, 2**16 - 1, 2**16, 2**16 + 1, 100_000, 2**20 - 1, 2**20, 2**20 + 1, LARGEST)
"""Bytes of a body, around every buffer on its way: what a picker is shown, Envoy's default, and ours."""
SILENCE_S = 0.5
PROTOCOLS = ("HTTP/1.1", "HTTP/2")


@dataclass(frozen=True)
class Served:
    """A gateway with TLS, and the engines behind it."""

    stack: Running
    engines: list[FakeEngine]
    models: tuple[str, ...]

    @property
    def url(self) -> str:
        return f"https://{self.stack.stack.listen}"

    @property
    def asked(self) -> int:
        return sum(engine.asked.total() for engine in self.engines)

    def client(self, protocol: str = "HTTP/2") -> openai.OpenAI:
        own = httpx2.Client(verify=False, http2=protocol == "HTTP/2", timeout=60)
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="x", max_retries=0, http_client=own)

    def many(self, protocol: str = "HTTP/2") -> openai.AsyncOpenAI:
        own = httpx2.AsyncClient(verify=False, http2=protocol == "HTTP/2", timeout=60)
        return openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key="x", max_retries=0, http_client=own)


def started(held: ExitStack, folder: Path, protocol: str, models: tuple[str, ...]) -> Served:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not here")
    pair = (str(folder / "gateway.pem"), str(folder / "gateway.key"))
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=gateway"]
    subprocess.run([*made, "-keyout", pair[1], "-out", pair[0]], check=True, capture_output=True)
    engines = held.enter_context(fake_engines(4, models))
    addresses = tuple(engine.address for engine in engines)
    more = {"models": models, "protocol": protocol, "tls": pair, "min_silence_s": SILENCE_S}
    return Served(held.enter_context(running(folder, endpoints=0, real=addresses, **more)), engines, models)


@pytest.fixture(scope="module", params=["module", "ext_proc"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with ExitStack() as held:
        yield started(held, tmp_path_factory.mktemp("clients"), request.param, (MODEL,))


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with ExitStack() as held:
        yield started(held, tmp_path_factory.mktemp("several"), "module", (MODEL, "other"))


def exact_bodies(served: Served, protocol: str) -> None:
    """Send bodies of exact sizes, with a length and without: each arrives whole, and only the engine answers."""
    model = served.models[-1]
    with served.client(protocol) as client:

        def received(content: str) -> int:
            said: list[ChatCompletionMessageParam] = [{"role": "user", "content": content}]
            answer = client.chat.completions.create(model=model, messages=said)
            return int(answer.choices[0].message.content or 0)

        besides = received("")
        for size in SIZES:
            assert received("x" * (size - besides)) == size
        for size in (size for size in SIZES if size != LARGEST):
            start = b'{"messages": [{"role": "user", "content": "'
            end = b'"}], "model": "%b"}' % model.encode()
            text = start + b"x" * (size - len(start) - len(end)) + end
            pieces = (text[at : at + 2**14] for at in range(0, size, 2**14))
            answer = client._client.post(f"{served.url}/v1/chat/completions", content=pieces)  # noqa: SLF001 - as it is
            assert answer.status_code == 200, (size, answer.text)
            assert answer.json()["choices"][0]["message"]["content"] == str(size)
            assert answer.http_version == protocol


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_bodies_of_every_size_reach_an_engine_whole(served: Served, protocol: str) -> None:
    exact_bodies(served, protocol)


def test_bodies_of_every_size_reach_the_engine_of_their_model(several: Served) -> None:
    for protocol in PROTOCOLS:
        exact_bodies(several, protocol)


async def ask(client: openai.AsyncOpenAI, content: str = "hi", *, stream: bool = False) -> int:
    """Return the status a client sees."""
    said: list[ChatCompletionMessageParam] = [{"role": "user", "content": content}]
    try:
        if stream:
            chunks = await client.chat.completions.create(model=MODEL, messages=said, stream=True)
            return 200 if [chunk async for chunk in chunks] else 0
        await client.chat.completions.create(model=MODEL, messages=said)
    except openai.APIStatusError as error:
        return error.status_code
    return 200


async def asked_many(served: Served, count: int, content: str = "hi", in_parallel: int = 8) -> list[int]:
    """Ask many times, every other answer streamed; return the statuses."""
    left = iter(range(count))
    async with served.many() as client:

        async def one() -> list[int]:
            return [await ask(client, content, stream=number % 2 == 0) for number in left]

        return [status for found in await asyncio.gather(*(one() for _ in range(in_parallel))) for status in found]


def test_an_engine_with_500s_loses_no_request_and_recovers(served: Served) -> None:
    bad, *good = served.engines
    bad.status = 500
    for engine in good:
        engine.delay_s = 0.03
    try:
        before = bad.asked.total()
        assert asyncio.run(asked_many(served, 120)) == [200] * 120
        assert bad.asked.total() - before < 30  # it is no black hole
    finally:
        bad.status = 200
        for engine in good:
            engine.delay_s = 0.0
    before, begun_s = bad.asked.total(), time.monotonic()
    while bad.asked.total() < before + 3:
        assert asyncio.run(asked_many(served, 20)) == [200] * 20
        assert time.monotonic() - begun_s < 20, "an engine that is well again gets no requests"


def test_a_request_that_fails_everywhere_excludes_no_engine(served: Served) -> None:
    before = served.asked
    assert asyncio.run(asked_many(served, 20, "poison")) == [500] * 20
    assert served.asked - before <= 20 * 4
    time.sleep(0.2)
    before = served.asked
    assert asyncio.run(asked_many(served, 60)) == [200] * 60
    assert served.asked - before == 60  # nothing had to be tried twice
    with pytest.raises(openai.InternalServerError, match="this engine fails"), served.client() as client:
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "poison"}])


def test_a_slow_first_token_is_answered_although_another_engine_fails(served: Served) -> None:
    """Headers come with the first token, after several times the silence after which another engine is tried too."""
    bad, *slow = served.engines
    before, failed = served.asked, bad.asked.total()
    bad.delay_s, bad.status = 2 * SILENCE_S, 500
    for engine in slow:
        engine.delay_s = 6 * SILENCE_S
    try:
        assert asyncio.run(asked_many(served, 8)) == [200] * 8
    finally:
        bad.status = 200
        for engine in served.engines:
            engine.delay_s = 0.0
    again = served.asked - before - 8 - (bad.asked.total() - failed)
    assert again <= 2 * 8  # nobody is asked whether a silent endpoint lives


def test_only_inference_reaches_the_engines(served: Served) -> None:
    with served.client() as client:
        assert [card.id for card in client.models.list()] == [MODEL]
        assert client.models.retrieve(MODEL).id == MODEL
        before = served.asked
        for path in ("/load_lora_adapter", "/unload_lora_adapter", "/files", "/loads", "/models", "/fine_tuning/jobs"):
            with pytest.raises(openai.NotFoundError, match="only inference paths"):
                client.post(path, cast_to=object, body={"lora_name": "evil"})
        with pytest.raises(openai.NotFoundError, match="only the endpoint that made a stored response has it"):
            client.responses.retrieve("resp_1")
        assert served.asked == before
        for path in ("/v1/embeddings", "/tokenize", "/v2/rerank", "/v1/responses", "/v1/messages?beta=true"):
            said = client._client.post(f"{served.url}{path}", json={"model": MODEL})  # noqa: SLF001 - as it is
            assert said.status_code == 200, path
        form = {"data": {"model": MODEL}, "files": {"file": ("a.wav", b"\0" * 100_000, "audio/wav")}}
        said = client._client.post(f"{served.url}/v1/audio/transcriptions", **form)  # type: ignore[arg-type] # noqa: SLF001
        assert said.status_code == 200
        assert served.asked == before + 6
