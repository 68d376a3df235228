"""Each difference that is planted in one of two emulated servers is refused, marked, or listed as not verified."""

import asyncio
import json

import pytest

from emulated import ask, emulated, serve
from penstock.emulator.planted_differences import DIFFERENCES
from penstock.parity.certificate import ParityCertificate, Standing, certify
from penstock.parity.read_setup import read_setup
from ports import free_ports

REFUSED, MARKED, UNVERIFIED = Standing.REFUSED, Standing.MARKED, Standing.UNVERIFIED
PLANTED: dict[str, tuple[object, str, Standing, str, Standing]] = {
    "version": ("0.31.0", "version", MARKED, "version", MARKED),
    "weights": ("fp8", "answers", MARKED, "weights", MARKED),
    "checkpoint": ("org/Llama-Other", "model", REFUSED, "model", REFUSED),
    "revision": ("abc123", "answers", MARKED, "answers", MARKED),
    "kv": ("fp8", "kv_dtype", REFUSED, "kv_dtype", REFUSED),
    "max_tokens": (2048, "context", REFUSED, "context", REFUSED),
    "answer_cap": (32, "answer_length", REFUSED, "answer_length", REFUSED),
    "prefix_caching": (False, "prefix_cache", REFUSED, "prefix_cache", REFUSED),
    "drafted_tokens": (3, "drafting", REFUSED, "drafting", REFUSED),
    "tokenizer": (7, "tokenizer", REFUSED, "tokenizer", REFUSED),
    "template_tokens": (2, "template", REFUSED, "template", REFUSED),
    "max_sequences": (64, "max_sequences", UNVERIFIED, "max_sequences", MARKED),
    "max_batched_tokens": (2048, "max_batched_tokens", UNVERIFIED, "max_batched_tokens", MARKED),
    "tp": (2, "split", UNVERIFIED, "split", MARKED),
    "kv_blocks": (150, "kv_tokens", MARKED, "kv_tokens", MARKED),
    "block_tokens": (32, "page_tokens", MARKED, "page_tokens", MARKED),
    "adapter": ("french", "adapters", MARKED, "adapters", MARKED),
    "attention_backend": ("triton", "attention", UNVERIFIED, "attention", MARKED),
    "schedule_policy": ("lpm", "schedule", UNVERIFIED, "schedule", MARKED),
    "disable_cuda_graph": (True, "graphs", UNVERIFIED, "graphs", MARKED),
    "enable_hierarchical_cache": (True, "offload", UNVERIFIED, "offload", MARKED),
}
"""Difference, planted value, and the fact with its standing between two vLLM servers and between two SGLang servers."""
OTHER = {
    "attention_backend": "fa3",
    "schedule_policy": "fcfs",
    "disable_cuda_graph": False,
    "enable_hierarchical_cache": False,
}
"""Settings of the first server, which the emulator states only where they are planted."""


def certified(engines: tuple[str, str], *commands: tuple[str, dict[str, object]]) -> ParityCertificate:
    """Return the certificate of two servers after commands to the pools `nvidia` and `amd`."""
    first, second, control = free_ports(3)
    found = []

    async def script() -> None:
        for pool, command in commands:
            assert (await ask(control, "/", {"pool": pool, **command})).status == 200
        pools = (("nvidia", first), ("amd", second))
        setups = [await asyncio.to_thread(read_setup, pool, f"http://127.0.0.1:{port}") for pool, port in pools]
        found.append(certify(setups))

    replicas = [
        emulated(port, pool=pool, engine=engine)
        for port, pool, engine in zip((first, second), ("nvidia", "amd"), engines, strict=True)
    ]
    serve(replicas, control, script, speed=200)
    return found[0]


def standing(certificate: ParityCertificate, name: str) -> Standing:
    return next(one.standing for one in certificate.facts if one.fact.name == name)


def test_every_difference_has_an_expectation() -> None:
    assert set(PLANTED) == set(DIFFERENCES)
    seen = [entry for entry in PLANTED.values() if entry[4] in {REFUSED, MARKED}]
    assert len(seen) == len(PLANTED) >= 15


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_equal_servers_differ_in_nothing(engine: str) -> None:
    certificate = certified((engine, engine))
    assert certificate.holds
    assert not certificate.having(MARKED)
    assert standing(certificate, "logprobs") is UNVERIFIED


def test_two_engines_are_comparable_and_the_difference_is_marked() -> None:
    certificate = certified(("vllm", "sglang"))
    assert certificate.holds
    assert {one.fact.name for one in certificate.having(MARKED)} == {"engine"}
    assert {"weights", "max_sequences", "split"} <= {one.fact.name for one in certificate.having(UNVERIFIED)}


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("difference", PLANTED)
def test_a_planted_difference_is_found(difference: str, engine: str) -> None:
    value, *by_engine = PLANTED[difference]
    fact, expected = by_engine[:2] if engine == "vllm" else by_engine[2:]
    commands: list[tuple[str, dict[str, object]]] = [("amd", {"difference": difference, "value": value})]
    if difference in OTHER:
        commands.append(("nvidia", {"difference": difference, "value": OTHER[difference]}))
    certificate = certified((engine, engine), *commands)
    assert standing(certificate, str(fact)) is expected
    assert certificate.holds is (expected is not REFUSED)


@pytest.mark.parametrize(("difference", "values"), [("weights", ("fp8", "int4")), ("revision", ("abc", "def"))])
def test_two_stated_values_are_refused_where_they_differ(difference: str, values: tuple[str, str]) -> None:
    commands: list[tuple[str, dict[str, object]]] = [
        (pool, {"difference": difference, "value": value})
        for pool, value in zip(("nvidia", "amd"), values, strict=True)
    ]
    assert standing(certified(("sglang", "sglang"), *commands), difference) is REFUSED


def test_an_accepted_difference_is_marked() -> None:
    first, second, control = free_ports(3)

    async def script() -> None:
        said = await ask(control, "/", {"pool": "amd", "difference": "kv", "value": "fp8"})
        assert said.status == 200
        for body in ({"difference": "kv", "value": 3}, {"difference": "colour"}, {"difference": "kv", "fault": "die"}):
            wrong = await ask(control, "/", body)
            assert wrong.status == 400
            assert "error" in json.loads(wrong.body)
        pools = (("nvidia", first), ("amd", second))
        setups = [await asyncio.to_thread(read_setup, pool, f"http://127.0.0.1:{port}") for pool, port in pools]
        assert standing(certify(setups, accepted={"kv_dtype"}), "kv_dtype") is MARKED

    serve([emulated(first, pool="nvidia"), emulated(second, pool="amd")], control, script, speed=200)
