"""How wrong are disaggregated deployments predicted, beside every published run? docs/evidence.md has figures."""

from collections import defaultdict
from collections.abc import Sequence
from math import expm1, log
from statistics import median

import pytest
from rerun_disaggregated import rerun_disaggregated

from penstock.catalog import load_measurements
from penstock.performance.disaggregated.phase_factors import PHASES, Residual, SharedEffects, sum_effects
from penstock.performance.disaggregated.steady_state import HANDOVER_S
from penstock.performance.shipped.shipped_disaggregated import (
    DRAINING,
    Guess,
    fit_phase_factors,
    handovers,
    held_out_guesses,
    published_disaggregated,
    runs,
    shipped_phase_factors,
    stack_alone,
)

pytestmark = pytest.mark.refit


def errors(guesses: Sequence[Guess]) -> tuple[float, float]:
    """Median absolute error of tokens a second and of time per token, relative to what was measured."""
    rates, times = ([abs(expm1(-log_off)) for log_off in logs] for logs in zip(*map(_logs, guesses), strict=True))
    return median(rates), median(times)


def _logs(guess: Guess) -> tuple[float, float]:
    return guess.log_rate, guess.log_tpot


@pytest.fixture(scope="module")
def unseen() -> list[Guess]:
    return plain(held_out_guesses(runs(), "configuration"))


def plain(guesses: Sequence[Guess]) -> list[Guess]:
    return [guess for guess in guesses if not guess.run.row.drafted]


def test_with_the_configuration_held_out_rates_and_times_are_near(unseen: list[Guess]) -> None:
    """12.8% and 10.3%."""
    rate, tpot = errors(unseen)
    assert rate < 0.15
    assert tpot < 0.13


def test_every_stack_with_thirty_rows_is_within_a_quarter(unseen: list[Guess]) -> None:
    """The worst are vLLM (24.0%) and SGLang (13.8%) on MI355X; TensorRT-LLM on H100 has 14 rows and is not."""
    stacks = defaultdict(list)
    for guess in unseen:
        stacks[guess.run.stack].append(guess)
    large = {stack: errors(members) for stack, members in stacks.items() if len(members) >= 30}
    assert len(large) == 16
    assert max(rate for rate, _ in large.values()) < 0.27
    assert max(tpot for _, tpot in large.values()) < 0.20


def test_the_simulator_says_of_published_runs_what_the_closed_form_does(unseen: list[Guess]) -> None:
    """Every tenth run: 90% are within 5% of each other on the rate and 2% on the time per token."""
    again = [rerun_disaggregated(guess) for guess in unseen[::10]]
    rates = sorted(abs(rerun.log_rate - rerun.guess.log_rate) for rerun in again)
    times = sorted(abs(rerun.log_tpot - rerun.guess.log_tpot) for rerun in again)
    most = round(0.9 * len(again))
    assert rates[most] < 0.07
    assert times[most] < 0.03
    assert median(abs(expm1(-rerun.log_rate)) for rerun in again) < 0.17
    assert median(abs(expm1(-rerun.log_tpot)) for rerun in again) < 0.15


def test_with_the_model_held_out_on_its_stack_both_are_within_a_quarter() -> None:
    """19.2% and 19.3%."""
    rate, tpot = errors(plain(held_out_guesses(runs(), "model")))
    assert rate < 0.22
    assert tpot < 0.23


def test_what_is_learnt_from_disaggregated_runs_takes_more_than_a_quarter_off_the_error(unseen: list[Guess]) -> None:
    """From 15.5% to 11.2% on the rate, and from 15.2% to 9.2% on the time per token."""
    before, after = errors(plain(stack_alone(runs()))), errors(unseen)
    assert after[0] < min(0.75 * before[0], 0.115)
    assert after[1] < min(0.67 * before[1], 0.095)


def test_rows_that_draft_are_used_and_twins_are_left_out() -> None:
    every = [row for row in load_measurements() if row.scenario == "disaggregated"]
    assert sum(row.drafted == "mtp" for row in every) >= 827
    assert len(published_disaggregated()) == sum(not row.twin for row in every)


def test_pools_that_draft_with_their_configuration_held_out() -> None:
    """+67% on the time per token while drafts were ignored."""
    drafting = [guess for guess in held_out_guesses(runs(), "configuration") if guess.run.row.drafted]
    assert len(drafting) >= 695
    rate, tpot = errors(drafting)
    assert tpot <= 0.16
    assert rate <= 0.2


def test_the_end_of_a_run_takes_half_a_request_of_each_user() -> None:
    """Where first tokens are published, users / rate beside the time of a request."""
    ratios = [
        (row.concurrency or 0)
        / (row.output_tokens_per_s or 1)
        * row.output_tokens
        / (row.ttft_s + (row.output_tokens - 1) * (row.tpot_s or 0))
        for row in published_disaggregated()
        if row.ttft_s and row.source == "inferencex"
    ]
    assert len(ratios) > 250
    assert median(ratios) == pytest.approx(1 + DRAINING, abs=0.02)


def test_handing_over_takes_what_pairs_of_runs_say() -> None:
    later = [seconds for _, seconds in handovers()]
    assert len(later) == 27
    assert median(later) == pytest.approx(HANDOVER_S, abs=0.01)


@pytest.mark.xfail(
    reason="factors are older than the measured rates between loads; `make disaggregation`", strict=False
)
def test_what_is_shipped_is_what_is_fitted() -> None:
    """`make disaggregation` writes it; stale after a change of the stacks or the rows."""
    now, shipped = fit_phase_factors(runs()), shipped_phase_factors()
    for phase in PHASES:
        assert now.effects[phase].keys() == shipped.effects[phase].keys()
        assert all(abs(now.effects[phase][label] - value) < 0.02 for label, value in shipped.effects[phase].items())


def residual(group: str, *labels: str, off: float) -> Residual:
    return Residual(labels=labels, log_ratio=off, rows=1000, group=group)


def test_what_all_share_goes_to_the_label_all_have() -> None:
    found = [residual(f"c{number}", "engine", f"c{number}", off=log(2.0)) for number in range(8)]
    effects = SharedEffects(found, "decode").all()
    assert effects["engine"] > 0.5
    assert all(abs(effects[f"c{number}"]) < 0.1 for number in range(8))


def test_holding_out_is_as_if_it_had_never_been_measured() -> None:
    found = [residual(f"c{number}", "engine", f"m{number % 2}", off=0.02 * number) for number in range(6)]
    without = SharedEffects(found, "prefill").effects_without("c5")
    never = SharedEffects(found[:5], "prefill").all()
    labels = ("engine", "m1")
    assert sum_effects(without, labels) == pytest.approx(sum_effects(never, labels), abs=1e-9)


def test_a_label_nobody_has_has_no_effect() -> None:
    effects = SharedEffects([residual("c", "engine", off=0.5)], "decode").all()
    assert sum_effects(effects, ("other",)) == 0
