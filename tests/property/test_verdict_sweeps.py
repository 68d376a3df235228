"""A claim swept from 0.2x to 5x of the median is confirmed in one interval at most, and verdicts rise once."""

from itertools import groupby
from statistics import median

import pytest

from audits import judged, library
from penstock.audit.judgement import Verdict

STEPS = [0.2 * 25 ** (step / 40) for step in range(41)]
"""Factors from 0.2 to 5."""
RANK = {
    Verdict.IMPOSSIBLE: 0,
    Verdict.IMPLAUSIBLE: 1,
    Verdict.UNDETERMINED: 2,
    Verdict.PLAUSIBLE: 2,
    Verdict.CONFIRMED: 3,
}
R1 = "model: deepseek-r1, hardware: 8x mi355x, over: 8x b200"
RATIOS = {
    "all stated": f"{R1}, precision: fp8, engine: sglang, input: 8192, output: 1024, concurrency: 64",
    "no drafts": f"{R1}, precision: fp8, drafts: false, input: 8192, output: 1024, concurrency: 64",
    "no format": f"{R1}, engine: sglang, input: 8192, output: 1024, concurrency: 64",
    "no load": f"{R1}, precision: fp4",
    "one load": "model: llama-3.3-70b, hardware: 1x mi355x, over: 1x b200, precision: fp8, concurrency: 64",
    "offline rows": "model: llama-3.1-70b, hardware: 8x h200, over: 8x h100, precision: fp8",
    "model only": "model: llama-3.1-70b, hardware: 2x h100, over: 2x mi300x, precision: fp16, concurrency: 8",
}
RATES = {
    "tok/s": ("model: deepseek-r1, hardware: 8x b200, precision: fp8, input: 1k, output: 1k, concurrency: 64", 3000),
    "tok/s, engine": (
        "model: gpt-oss-120b, hardware: 1x b200, engine: trtllm, input: 1k, output: 1k, concurrency: 256",
        9000,
    ),
    "tok/s, no load": ("model: deepseek-r1, hardware: 8x mi355x, precision: fp8", 3000),
    "tok/s, no rows": (
        "model: llama-3.1-70b, hardware: 2x h100, precision: fp8, input: 2k, output: 300, concurrency: 24",
        900,
    ),
    "ms": (
        "model: llama-3.3-70b, hardware: 1x mi300x, metric: tpot, input: 1k, output: 1k, concurrency: 64",
        45,
    ),
    "ms to first": (
        "model: deepseek-r1, hardware: 8x mi355x, metric: ttft, input: 8k, output: 1k, concurrency: 16",
        1500,
    ),
}
PRICES = {
    ("h100", "rent"): 3.25,
    ("h200", "rent"): 3.8,
    ("b200", "rent"): 5.5,
    ("mi300x", "rent"): 2.2,
    ("mi355x", "rent"): 3.5,
    ("h100", "purchase"): 27_500,
    ("mi300x", "purchase"): 18_127,
    ("b200", "purchase"): 50_000,
}


def swept(claims: list[str]) -> list[Verdict]:
    return [judged(claim).verdict for claim in claims]


def assert_rises_once(verdicts: list[Verdict]) -> None:
    runs = [verdict for verdict, _ in groupby(verdicts)]
    assert runs.count(Verdict.CONFIRMED) <= 1, runs
    ranks = [RANK[verdict] for verdict in runs]
    top = ranks.index(max(ranks))
    assert ranks[: top + 1] == sorted(ranks[: top + 1]), runs
    assert ranks[top:] == sorted(ranks[top:], reverse=True), runs


@pytest.mark.parametrize("setup", RATIOS)
def test_a_ratio_is_confirmed_in_one_interval(setup: str) -> None:
    assert_rises_once(swept([f"faster: {{{RATIOS[setup]}, figure: {factor:.3f}x}}" for factor in STEPS]))


@pytest.mark.parametrize("setup", RATES)
def test_a_rate_is_confirmed_in_one_interval(setup: str) -> None:
    about, middle = RATES[setup]
    unit = "tok/s" if "metric" not in about else "ms"
    assert_rises_once(swept([f"speed: {{{about}, figure: '{middle * factor:.2f} {unit}'}}" for factor in STEPS]))


@pytest.mark.parametrize(("accelerator", "paid_for"), PRICES)
def test_a_price_is_confirmed_in_one_interval(accelerator: str, paid_for: str) -> None:
    middle, unit = PRICES[accelerator, paid_for], " /h" if paid_for == "rent" else ""
    claims = [
        f"price: {{accelerator: {accelerator}, paid_for: {paid_for}, figure: '${middle * factor:.3f}{unit}'}}"
        for factor in STEPS
    ]
    assert_rises_once(swept(claims))


@pytest.mark.parametrize("paid_for", ["rent", "purchase"])
def test_a_discount_is_confirmed_in_one_interval(paid_for: str) -> None:
    claims = [
        f"cheaper: {{accelerator: mi300x, over: h100, paid_for: {paid_for}, figure: {share}%}}"
        for share in range(1, 96)
    ]
    assert_rises_once(swept(claims))


@pytest.mark.parametrize("setup", ["all stated", "no load"])
def test_at_most_half_of_the_published_loads_lie_between_what_is_confirmed(setup: str) -> None:
    confirmed = [
        factor
        for factor in STEPS
        if judged(f"faster: {{{RATIOS[setup]}, figure: {factor:.3f}x}}").verdict is Verdict.CONFIRMED
    ]
    assert confirmed
    assert max(confirmed) / min(confirmed) < 1.5


def test_neither_the_cheapest_nor_the_dearest_offer_is_the_price() -> None:
    rents = [p.usd_per_device for p in library().prices_of("h100_sxm") if p.usable and p.kind.startswith("rent")]
    for usd in (min(rents), 1, 8, 10, 12, max(rents)):
        found = judged(f"price: {{accelerator: h100, paid_for: rent, figure: ${usd:.2f} /h}}")
        assert found.verdict in {Verdict.PLAUSIBLE, Verdict.IMPLAUSIBLE}, (usd, found.reason)
    assert (
        judged(f"price: {{accelerator: h100, paid_for: rent, figure: ${median(rents):.2f} /h}}").verdict
        is Verdict.CONFIRMED
    )


def test_a_list_price_that_nobody_pays_confirms_nothing() -> None:
    found = judged("price: {accelerator: mi300x, paid_for: purchase, figure: '$117,000'}")
    assert found.verdict is Verdict.IMPLAUSIBLE
    assert judged("price: {accelerator: mi300x, paid_for: purchase, figure: '$18,100'}").verdict is Verdict.CONFIRMED
