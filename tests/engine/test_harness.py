"""The harness itself, without an engine: what it asks, what it reads, and what it fits."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from engine.calibration import Window, fit
from engine.replay import token_times
from engine.tiny_llama import Shape, write_model
from engine.trace import conversation
from penstock.checkpoint import cross_check, open_checkpoint

STEP_S, DECODE_S, TOKEN_S, CONTEXT_S, PAIR_S = 0.015, 2e-4, 1.5e-4, 1e-6, 1e-7
IDLE_OVERHEAD_S, OVERHEAD_S = 0.005, 0.012


def prefill(tokens: int, *, busy: bool = False) -> Window:
    pairs = tokens * tokens / 2
    return Window(
        probe=f"{'arrival' if busy else 'prefill'} {tokens}",
        seconds=(OVERHEAD_S if busy else IDLE_OVERHEAD_S) + STEP_S + tokens * TOKEN_S + pairs * PAIR_S,
        steps=1,
        decodes=0,
        prefill_tokens=tokens,
        contexts=0,
        pairs=pairs,
        idle_overheads=int(not busy),
        overheads=int(busy),
    )


def decode(requests: int, context: int, *, context_s: float = CONTEXT_S) -> Window:
    return Window(
        probe=f"decode {requests} x {context}",
        seconds=30 * (STEP_S + requests * (DECODE_S + context * context_s)),
        steps=30,
        decodes=30 * requests,
        prefill_tokens=0,
        contexts=30 * requests * context,
        pairs=0,
        idle_overheads=0,
        overheads=0,
    )


def probes(*, context_s: float = CONTEXT_S) -> list[Window]:
    decodes = [decode(requests, context, context_s=context_s) for requests, context in product((1, 8, 16), (20, 600))]
    return [*(prefill(tokens) for tokens in (1, 64, 240)), prefill(64, busy=True), *decodes]


def test_a_fit_finds_the_cost_that_made_the_windows() -> None:
    found = fit(probes())
    assert found.step_s == pytest.approx(STEP_S)
    assert found.decode_s == pytest.approx(DECODE_S)
    assert found.prefill_token_s == pytest.approx(TOKEN_S)
    assert found.context_s == pytest.approx(CONTEXT_S)
    assert found.pair_s == pytest.approx(PAIR_S)
    assert found.idle_overhead_s == pytest.approx(IDLE_OVERHEAD_S)
    assert found.overhead_s == pytest.approx(OVERHEAD_S)
    assert found.median_error_fraction < 1e-9


def test_a_fit_keeps_at_zero_what_the_plain_line_would_make_negative() -> None:
    found = fit(probes(context_s=-2e-7))
    assert found.context_s == 0
    assert found.step_s == pytest.approx(STEP_S, rel=0.05)


def test_repetitions_are_averaged_over_their_time() -> None:
    # A mean of relative errors would count the slow half less: harmonic, 1.5 times instead of 2.
    slow = [replace(one, seconds=3 * one.seconds) for one in probes()]
    assert fit([*probes(), *slow]).step_s == pytest.approx(2 * STEP_S)


def test_a_scaled_fit_takes_longer_for_everything() -> None:
    found = fit(probes()).scaled(1.25)
    assert [found.seconds(one) for one in probes()] == pytest.approx([1.25 * one.seconds for one in probes()])


def test_an_event_with_several_tokens_gives_them_one_time() -> None:
    events = [(0.1, 1), (0.3, 3), (0.3, 3), (0.4, 4)]
    lines = [(at_s, f'data: {{"usage": {{"completion_tokens": {tokens}}}}}'.encode()) for at_s, tokens in events]
    assert token_times(lines, 4) == (0.1, 0.3, 0.3, 0.4)
    with pytest.raises(RuntimeError, match="4 tokens where 5"):
        token_times(lines, 5)
    with pytest.raises(RuntimeError, match="no room"):
        token_times([(0.1, b'data: {"error": "no room"}')], 1)


def test_the_same_seed_gives_the_same_trace_and_another_seed_another() -> None:
    assert conversation(seed=1, requests=50, rate_per_s=5.0) == conversation(seed=1, requests=50, rate_per_s=5.0)
    assert conversation(seed=1, requests=50, rate_per_s=5.0) != conversation(seed=2, requests=50, rate_per_s=5.0)


def test_prompts_share_exactly_their_paths() -> None:
    trace = conversation(seed=3, requests=200, rate_per_s=5.0)
    calls = list(trace.calls(vocab_size=8192))
    assert [len(call.prompt) for call in calls] == list(trace.input_tokens)
    assert max(trace.input_tokens) + max(trace.output_tokens) <= 1024
    groups: dict[tuple[int, ...], list[int]] = {}
    for number, path in enumerate(trace.paths):
        groups.setdefault(path, []).append(number)
    assert len(groups) == 5
    for path, members in groups.items():
        shared = sum(trace.segment_tokens[segment] for segment in path)
        first, second = (calls[number].prompt for number in members[:2])
        assert first[:shared] == second[:shared]
        assert first[shared : shared + 4] != second[shared : shared + 4]


def test_the_lengths_have_the_shape_of_the_azure_conversations() -> None:
    trace = conversation(seed=4, requests=20_000, rate_per_s=5.0)
    alone = [tokens for tokens, path in zip(trace.input_tokens, trace.paths, strict=True) if not path]
    # exp of the mean logarithm, over the factor it is scaled down by; clipping moves a median by nothing.
    assert np.median(alone) == pytest.approx(np.exp(6.633) / 8, rel=0.05)
    assert np.median(trace.output_tokens) == pytest.approx(np.exp(5.019) / 4, rel=0.05)
    assert trace.arrival_s[-1] == pytest.approx(20_000 / 5.0, rel=0.05)


def test_the_model_is_a_checkpoint_that_penstock_reads_without_a_complaint(tmp_path: Path) -> None:
    shape = Shape(num_hidden_layers=2, vocab_size=512)
    write_model(tmp_path, shape)
    checkpoint = open_checkpoint(str(tmp_path), headers=True)
    assert checkpoint.tensors is not None
    checked = cross_check(checkpoint.spec, checkpoint.tensors)
    assert (checked.wrong_shapes, checked.missing, checked.unexpected) == ((), (), ())
    attention, mlp, norms = 2 * 512 * 512 + 2 * 512 * 256, 3 * 512 * 1536, 2 * 512
    assert checkpoint.spec.total_params == 2 * (attention + mlp + norms) + 2 * 512 * 512 + 512
    assert json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"]["w507"] == 511
