"""DeepSeek-V4's pages against what vLLM itself printed, and as arithmetic on its source."""

from dataclasses import replace
from math import ceil

import pytest

from examples import deployment
from penstock.fleet import Deployment
from penstock.model import CacheDtype
from penstock.performance import fit
from penstock.performance.memory.budget import DeviceRoom
from penstock.performance.memory.minimum_change import report_fit
from penstock.units import GIB

FLASH_TUPLE = 22 * (37440 + 8640 + 1728)
"""22 slots of an entry, an index and a coarse page: 64 x 584, 64 x 132 and 2 x 584, each a multiple of 576."""


def flash(version: str, batched_tokens: int, *, kv_gib: float | None = None, pp: int = 1) -> Deployment:
    placed = deployment("deepseek-v4-flash", "gh200", tp=2, pp=pp, version=version, kv=CacheDtype.FP8)
    given = None if kv_gib is None else int(kv_gib * GIB)
    return replace(
        placed, engine=replace(placed.engine, max_batched_tokens=batched_tokens, kv_cache_bytes=given, max_sequences=64)
    )


def start_bytes(placed: Deployment, tokens: int) -> int:
    capacity = fit(placed, tokens).capacity
    assert capacity is not None
    return capacity.start_bytes


def test_a_request_needs_what_vllm_printed() -> None:
    # vllm#44376: 30,000 tokens need 6.66 GiB; LLM() steps 16,384 tokens on such a card.
    assert f"{start_bytes(flash('0.22.0', 16384), 30_000) / GIB:.2f}" == "6.66"


def test_the_longest_context_is_the_one_vllm_estimated() -> None:
    # The same report: with 5.44 GiB (printed with two decimals) the estimate was 13,528.
    longest = [
        DeviceRoom(flash("0.22.0", 16384, kv_gib=gib)).at(8192).capacity.longest_context_tokens  # type: ignore[union-attr]
        for gib in (5.435, 5.445)
    ]
    assert longest[0] is not None
    assert longest[1] is not None
    assert longest[0] <= 13_528 <= longest[1]


@pytest.mark.parametrize("tokens", [1, 300, 8192, 40_000, 1_048_576])
def test_pages_are_those_of_five_tables(tokens: int) -> None:
    step = 8192
    window = 2 * (ceil(min(127 + step, tokens) / 64) + 1)
    fine, coarse = ceil(min(7 + step, tokens) / 4) + 1, ceil(min(127 + step, tokens) / 8) + 1
    pages = ceil(tokens / 256) + window + fine + coarse
    assert start_bytes(flash("0.25.0", step), tokens) == pages * FLASH_TUPLE


def test_overlapping_steps_are_set_aside_from_0_26() -> None:
    assert start_bytes(flash("0.26.0", 8192), 200_000) == start_bytes(flash("0.25.0", 16384), 200_000)
    assert start_bytes(flash("0.26.0", 8192), 200_000) > start_bytes(flash("0.25.0", 8192), 200_000)


def test_a_page_is_as_wide_as_the_widest_table_from_0_32() -> None:
    widest = 21 * (37440 + 8640) + 20 * 1728
    ratio = start_bytes(flash("0.32.0", 8192), 100_000) / start_bytes(flash("0.26.0", 8192), 100_000)
    assert ratio == pytest.approx(widest / FLASH_TUPLE)


def test_one_that_decodes_takes_far_less_than_one_that_starts() -> None:
    capacity = fit(flash("0.25.0", 8192, kv_gib=40), 8192).capacity
    assert capacity is not None
    assert capacity.start_bytes > 20 * capacity.request_bytes
    assert capacity.cached_requests == 1 + int((40 * GIB - capacity.start_bytes) / capacity.request_bytes)


def test_a_stage_sets_aside_pages_of_its_own_layers() -> None:
    whole = start_bytes(flash("0.25.0", 8192), 100_000)
    assert whole / 2 <= start_bytes(flash("0.25.0", 8192, pp=2), 100_000) < whole


def test_what_four_logs_say_is_not_called_calibrated() -> None:
    report = report_fit(flash("0.25.0", 8192), 8192)
    assert report.tier == "transferred"
    assert any("four published logs" in note for note in report.notes)
    assert report_fit(deployment("llama-3.1-8b", "gh200"), 8192).tier == "calibrated"
