"""Speeds as they are offered: counts of requests, setups without room, and ratios without a load."""

from io import StringIO

import pytest
from rich.console import Console

from audits import judged, judged_sentence, library
from penstock.audit.claims.amount import parse_amount
from penstock.audit.judge_claims import audit_claims
from penstock.audit.judgement import Verdict
from penstock.audit.parsing.claims_file import parse_claims
from penstock.errors import UsageError
from penstock.report.audit.terminal import render_audit


def test_requests_are_at_all_stages_of_their_answers() -> None:
    setup = "llama-3.1-70b fp8 on 8x h100 in 8k/1k"
    # A device has 77,070 million bytes beside the weights; 8,192 tokens take 167.8 of them, 9,216 take 188.7.
    assert 77_070 / 188.7 < 430 < 77_070 / 167.8
    assert judged_sentence(f"{setup}: 430 requests").verdict is Verdict.IMPLAUSIBLE
    assert judged_sentence(f"{setup}: 512 requests").verdict is Verdict.IMPOSSIBLE
    # In two bytes a number the cache of vLLM holds 177, in one twice as many: nobody said which.
    assert judged_sentence(f"{setup}: 300 requests").verdict is Verdict.PLAUSIBLE


def test_a_setup_without_room_for_a_cache_has_no_likely_speed() -> None:
    found = judged_sentence("deepseek-r1 fp8 on 8x h100 at 64 users: 1500 tok/s")
    assert found.verdict is Verdict.IMPLAUSIBLE
    assert "no memory is left for a KV cache" in found.reason


def test_a_ratio_without_a_load_is_of_the_same_loads() -> None:
    far = judged("faster: {model: llama-3.1-70b, hardware: 8x b200, over: 8x h100, figure: 15x, precision: fp8}")
    assert far.verdict is Verdict.IMPLAUSIBLE
    near = judged("faster: {model: llama-3.1-70b, hardware: 8x b200, over: 8x h100, figure: 2x, precision: fp8}")
    assert near.verdict is Verdict.PLAUSIBLE
    assert "above all 15 published loads, 1.58x to 1.8x, median 1.71x" in near.reason
    unpublished = judged("faster: {model: phi-4, hardware: 8x b200, over: 8x h100, figure: 2x, precision: fp8}")
    assert unpublished.verdict in {Verdict.UNDETERMINED, Verdict.PLAUSIBLE}
    assert "no load is published for both setups" in unpublished.reason
    assert "both with" in unpublished.workings[0].what


def test_vendor_ratios_without_a_load_are_decided_by_all_published_loads() -> None:
    setup = "model: deepseek-r1, precision: fp4, hardware: 8x mi355x, over: 8x b200"
    assert judged(f"faster: {{{setup}, figure: 0.85x}}").verdict is Verdict.CONFIRMED
    high = judged(f"faster: {{{setup}, figure: 1x}}")
    assert high.verdict is Verdict.PLAUSIBLE
    assert "above 29 of 38 published loads, median 0.899x" in high.reason
    boast = judged(f"faster: {{{setup}, figure: 1.6x}}")
    assert boast.verdict is Verdict.IMPLAUSIBLE
    assert "above all" in boast.reason
    modest = judged(f"faster: {{{setup}, figure: 0.2x}}")
    assert modest.verdict is Verdict.IMPLAUSIBLE
    assert "more modest than all" in modest.reason


def test_a_pair_of_one_source_counts_before_rows_of_two() -> None:
    """AMD's MI300X of July 2025 over somebody's H100 of November 2024 is not a comparison: dstack measured both."""
    setup = "model: llama-3.1-405b, precision: fp8, hardware: 8x mi300x, over: 8x h100"
    found = judged(f"faster: {{{setup}, figure: over 1x}}")
    assert [source.title.split(",")[0] for source in found.sources] == ["dstack benchmarks"]


def test_a_range_that_misses_the_median_by_what_about_allows_is_not_confirmed() -> None:
    found = judged("price: {accelerator: h100, paid_for: purchase, figure: '~$30,000-40,000'}", said_on="2026-03-18")
    assert found.verdict is Verdict.PLAUSIBLE
    assert "median $27,500" in found.reason


def test_times_are_set_beside_each_other_in_milliseconds() -> None:
    found = judged_sentence("llama-3.1-70b fp8 on 8x h100 in 8k/1k at 64 users: 400 ms to first token")
    assert found.workings[0].expression.startswith("400 / ")
    assert found.workings[0].what.endswith(", in ms")
    assert " to " not in found.reason


def test_a_hair_above_the_bound_is_not_called_one_times_it() -> None:
    found = judged_sentence("llama-3.1-70b fp16 on 1x mi300x at 1 users without drafts: 39 tok/s")
    assert found.verdict is Verdict.IMPOSSIBLE
    assert "2.3% above what physics allows" in found.reason


def test_a_figure_in_a_file_says_by_its_unit_what_it_is() -> None:
    setup = "model: llama-3.1-70b, hardware: 8x h100, precision: fp8, input: 8k, output: 1k"
    assert judged(f"speed: {{{setup}, figure: 512 requests}}").verdict is Verdict.IMPOSSIBLE
    with pytest.raises(UsageError, match="metric: tpot"):
        judged(f"speed: {{{setup}, figure: 20 ms}}")


@pytest.mark.parametrize("unit", ["tok/s", "tokens per second", "t/s", "tokens/sec"])
def test_rates_have_several_names(unit: str) -> None:
    assert parse_amount(f"3000 {unit}").measure == "tokens/s"


def test_prices_say_where_a_claim_stands_among_them() -> None:
    found = judged("price: {accelerator: h100, paid_for: rent, figure: $20 /h}")
    assert found.verdict is Verdict.IMPLAUSIBLE
    assert "the claimed $20 /h is above all 49 prices" in found.reason
    high = judged("price: {accelerator: h100, paid_for: rent, figure: $10 /h}")
    assert high.verdict is Verdict.PLAUSIBLE
    assert "above 45 of 49 prices, median $2.99" in high.reason


def test_discounts_are_those_of_providers_that_offer_both() -> None:
    rent = "cheaper: {accelerator: mi300x, over: h100, paid_for: rent, figure: "
    assert judged(rent + "40%}").verdict is Verdict.CONFIRMED
    small = judged(rent + "5%}")
    assert small.verdict is Verdict.PLAUSIBLE
    assert "a smaller discount than 10 of 11 offers" in small.reason
    assert "-" not in judged("cheaper: {accelerator: mi300x, over: h100, paid_for: purchase, figure: ~50%}").reason


def test_a_claim_older_than_the_rows_may_be_slower_than_them() -> None:
    setup = "model: llama-3.3-70b, hardware: 1x mi300x, precision: fp8, engine: vllm, input: 1k, output: 1k"
    claim = f"speed: {{{setup}, concurrency: 64, figure: 800 tok/s}}"
    assert judged(claim).verdict is Verdict.IMPLAUSIBLE
    old = judged(claim, said_on="2024-06-01")
    assert old.verdict is Verdict.PLAUSIBLE
    assert "published after the claim" in old.reason


def test_a_long_list_says_what_undetermined_claims_lack_and_names_every_claim() -> None:
    known = "\n".join(
        f"  - spec: {{accelerator: h100, quantity: memory, figure: {80 + one / 100} GB}}" for one in range(24)
    )
    missing = "  - date: {subject: vllm, event: shipped, when: 2023-06}"
    audited = audit_claims(parse_claims(f"version: 2\nclaims:\n{known}\n{missing}\n", "t.yaml"), library())
    screen = Console(file=StringIO(), width=100, color_system=None)
    screen.print(render_audit(audited))
    shown = screen.file.getvalue()  # type: ignore[attr-defined]  # a StringIO
    assert "No sourced date is on record for 'vllm: shipped'; events" in " ".join(shown.split())
    assert "h100_sxm memory 80.23 GB" in shown


@pytest.mark.parametrize("drafts", ["", " drafting"])
def test_saying_that_tokens_are_drafted_damns_nothing(drafts: str) -> None:
    setup = "deepseek-r1 fp4 on 8x b200 in 1k/1k at 1 users"
    assert judged_sentence(f"{setup}{drafts}: 250 tok/s").verdict is Verdict.PLAUSIBLE
    without_layers = judged_sentence(f"llama-3.1-70b fp8 on 8x h100 in 1k/300 at 2 users{drafts}: 600 tok/s")
    assert (without_layers.verdict is Verdict.PLAUSIBLE) == bool(drafts), without_layers.reason


def test_a_time_that_is_too_short_is_not_called_below_the_model() -> None:
    found = judged_sentence("llama-3.1-70b fp8 on 8x h100 in 1k/300 at 2 users without drafts: 3.2 ms")
    assert found.verdict is Verdict.IMPLAUSIBLE
    assert "faster than" in found.reason or "shorter than" in found.reason
    slow = judged_sentence("llama-3.1-70b fp8 on 8x h100 in 1k/300 at 2 users: 200 ms")
    assert "is slower than the predicted" in slow.reason
