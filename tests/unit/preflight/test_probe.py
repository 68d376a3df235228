"""The probe tells rounding from error: noise passes, a factor of two, a swapped layer and a bad cache do not."""

import json
import math
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from penstock.errors import UsageError
from penstock.parity.compare_answers import PROMPTS, Answers, ProbeVerdict, Scored, compare
from penstock.parity.http_client import EndpointError
from penstock.parity.openai_client import ask, load_answers, save_answers

VOCABULARY, WIDTH, LAYERS = 64, 48, 6


class Toy:
    """A small residual network with a cache: enough of a language model to be wrong in the ways that matter."""

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.embedding = rng.normal(0, 1, (VOCABULARY, WIDTH))
        self.layers = [rng.normal(0, 1.2 / math.sqrt(WIDTH), (WIDTH, WIDTH)) for _ in range(LAYERS)]
        self.head = rng.normal(0, 0.5, (WIDTH, VOCABULARY))
        self.order = list(range(LAYERS))
        self.layer_scale = dict.fromkeys(range(LAYERS), 1.0)
        self.cache_limit = math.inf
        self.noise = 0.0
        self._rng = np.random.default_rng(7)

    def logprobs(self, tokens: list[int], *, cached: bool) -> np.ndarray:
        keys = self.embedding[tokens]
        if cached:
            keys = np.clip(keys, -self.cache_limit, self.cache_limit)
        weights = 0.8 ** np.arange(len(tokens))[::-1]
        state = self.embedding[tokens[-1]] + weights @ keys / weights.sum()
        for number in self.order:
            state = state + np.tanh(state @ self.layers[number] * self.layer_scale[number])
            state = state * (1 + self.noise * self._rng.normal(0, 1, WIDTH))
        logits = state @ self.head
        return np.asarray(logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max())


def score(toy: Toy, text: str) -> tuple[Scored, Scored]:
    tokens = [ord(character) % VOCABULARY for character in text]
    rows = [toy.logprobs(tokens[:place], cached=False) for place in range(1, len(tokens))]
    prompt = Scored(
        tokens=tuple(str(token) for token in tokens),
        logprobs=(None, *(float(row[token]) for row, token in zip(rows, tokens[1:], strict=True))),
        top=({}, *(best(row) for row in rows)),
    )
    written: list[int] = []
    decoded: list[np.ndarray] = []
    for step in range(16):
        row = toy.logprobs(tokens + written, cached=step > 0)
        decoded.append(row)
        written.append(int(row.argmax()))
    return prompt, Scored(
        tokens=tuple(str(token) for token in written),
        logprobs=tuple(float(row[token]) for row, token in zip(decoded, written, strict=True)),
        top=tuple(best(row) for row in decoded),
    )


def best(row: np.ndarray) -> dict[str, float]:
    return {str(token): float(row[token]) for token in np.argsort(row)[::-1][:5]}


def answers(toy: Toy) -> Answers:
    scored = [score(toy, prompt) for prompt in PROMPTS]
    return Answers(
        model="toy", prompts=tuple(prompt for prompt, _ in scored), decoded=tuple(decoded for _, decoded in scored)
    )


REFERENCE = answers(Toy())


def test_an_identical_server_is_the_same() -> None:
    outcome = compare(REFERENCE, answers(Toy()))
    assert outcome.verdict is ProbeVerdict.SAME
    assert outcome.prompt_drift == 0
    assert outcome.flipped_choices == 0


@pytest.mark.parametrize("seed", range(5))
def test_rounding_of_bf16_is_the_same(seed: int) -> None:
    toy = Toy()
    toy.noise = 2**-9
    toy._rng = np.random.default_rng(seed)  # noqa: SLF001 - the toy's own noise
    outcome = compare(REFERENCE, answers(toy))
    assert outcome.verdict is ProbeVerdict.SAME
    assert outcome.prompt_drift is not None
    assert 0 < outcome.prompt_drift < 0.05


@pytest.mark.parametrize("layer", range(LAYERS))
@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_scale_off_by_two_in_any_one_layer_is_caught(layer: int, factor: float) -> None:
    toy = Toy()
    toy.layer_scale[layer] = factor
    assert compare(REFERENCE, answers(toy)).verdict is ProbeVerdict.DIFFERENT


@pytest.mark.parametrize("first", range(LAYERS - 1))
def test_a_swapped_pair_of_layers_is_caught(first: int) -> None:
    toy = Toy()
    toy.order[first], toy.order[first + 1] = toy.order[first + 1], toy.order[first]
    assert compare(REFERENCE, answers(toy)).verdict is ProbeVerdict.DIFFERENT


def test_a_cache_that_saturates_is_caught_while_decoding_only() -> None:
    toy = Toy()
    toy.cache_limit = 0.5
    outcome = compare(REFERENCE, answers(toy))
    assert outcome.verdict is ProbeVerdict.DIFFERENT
    assert outcome.prompt_drift == 0
    assert "KV cache" in outcome.reason


def test_a_decode_that_shares_no_alternative_is_different_not_uncompared() -> None:
    def decoded(second: dict[str, float]) -> Answers:
        place = Scored(
            tokens=("a", max(second, key=lambda token: second[token])),
            logprobs=(-0.1, -0.1),
            top=({"a": -0.1, "b": -3.0}, second),
        )
        return Answers(model="x", prompts=REFERENCE.prompts, decoded=(place,) * len(PROMPTS))

    outcome = compare(decoded({"c": -0.1, "d": -9.0}), decoded({"e": -0.1, "f": -9.5}))
    assert outcome.verdict is ProbeVerdict.DIFFERENT
    assert "KV cache" in outcome.reason


def test_other_tokens_are_not_compared() -> None:
    other = Answers(
        model="x",
        prompts=tuple(Scored(tokens=("?",), logprobs=(None,), top=({},)) for _ in PROMPTS),
        decoded=REFERENCE.decoded,
    )
    assert compare(REFERENCE, other).verdict is ProbeVerdict.INCOMPARABLE


class Server(BaseHTTPRequestHandler):
    toy = Toy()
    refuse = False

    def log_message(self, *arguments: object) -> None:
        del arguments

    def do_GET(self) -> None:
        self.answer({"data": [{"id": "toy"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.refuse:
            self.send_error(400, "logprobs are not allowed")
            return
        prompt, decoded = score(self.toy, body["prompt"])
        scored = prompt if body.get("echo") else decoded
        if body.get("echo"):
            # As vLLM does: the one token it must write comes back with the prompt.
            scored = Scored(
                tokens=(*prompt.tokens, decoded.tokens[0]),
                logprobs=(*prompt.logprobs, decoded.logprobs[0]),
                top=(*prompt.top, decoded.top[0]),
            )
        found = {
            "tokens": scored.tokens,
            "token_logprobs": scored.logprobs,
            "top_logprobs": [place or None for place in scored.top],
        }
        self.answer({"choices": [{"logprobs": found}], "usage": {"prompt_tokens": len(prompt.tokens)}})

    def answer(self, document: object) -> None:
        data = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def server() -> Iterator[tuple[str, type[Server]]]:
    handler = type("Handler", (Server,), {"toy": Toy()})
    serving = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=serving.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{serving.server_address[1]}", handler
    serving.shutdown()
    serving.server_close()
    thread.join()


def test_a_reference_survives_the_file_and_the_wire(server: tuple[str, type[Server]], tmp_path: Path) -> None:
    url, handler = server
    reference = tmp_path / "reference.json"
    save_answers(ask(url, None), reference)
    assert compare(load_answers(reference), ask(f"{url}/v1", "toy")).verdict is ProbeVerdict.SAME
    handler.toy.layer_scale[2] = 2.0
    assert compare(load_answers(reference), ask(url, None)).verdict is ProbeVerdict.DIFFERENT


def test_a_server_that_refuses_is_one_line(server: tuple[str, type[Server]]) -> None:
    url, handler = server
    handler.refuse = True
    with pytest.raises(EndpointError) as refused:
        ask(url, None)
    assert "HTTP 400" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("url", ["127.0.0.1:80", "ftp://x", "file:///etc/passwd", ""])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(UsageError):
        ask(url, None)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', '{"format": 2, "prompts_digest": "x"}'])
def test_what_is_no_reference_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(EndpointError):
        load_answers(path)
