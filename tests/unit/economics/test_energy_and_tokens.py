"""Node power with its source, and the price of tokens."""

from dataclasses import replace
from math import inf, isclose

from hypothesis import given
from hypothesis import strategies as st

from penstock.catalog import load_accelerator
from penstock.economics.energy import NODE_OVER_DEVICES, average_watts, node_power
from penstock.economics.token_price import token_price


def test_a_published_node_figure_is_used_as_it_is() -> None:
    power = node_power(load_accelerator("h100"))
    assert power is not None
    assert (power.node_watts, power.basis) == (10_200, "catalog")


def test_a_node_without_a_figure_is_scaled_like_the_published_ones() -> None:
    power = node_power(load_accelerator("mi300x"))
    assert power is not None
    assert power.basis == "derived"
    assert isclose(power.node_watts, 8 * 750 * NODE_OVER_DEVICES)
    assert 1.6 < NODE_OVER_DEVICES < 2.1


def test_without_any_power_figure_the_answer_is_none() -> None:
    part = load_accelerator("mi300x")
    sources = tuple(replace(s, fields=tuple(f for f in s.fields if f != "tdp_watts")) for s in part.sources)
    dark = replace(part, tdp_watts=None, sources=tuple(source for source in sources if source.fields))
    assert node_power(dark) is None


def test_average_power_runs_from_idle_to_the_maximum() -> None:
    assert average_watts(10_000, idle_fraction=0.3, load_fraction=0) == 3_000
    assert average_watts(10_000, idle_fraction=0.3, load_fraction=1) == 10_000
    assert average_watts(10_000, idle_fraction=0.3, load_fraction=7) == 10_000


@given(usd=st.floats(1, 1e8), inputs=st.floats(1, 1e12), outputs=st.floats(1, 1e12), prefill=st.floats(0, 1))
def test_input_and_output_together_pay_the_whole_bill(
    usd: float, inputs: float, outputs: float, prefill: float
) -> None:
    price = token_price(usd, input_tokens=inputs, output_tokens=outputs, prefill_fraction=prefill)
    assert price.input_usd_per_mtok is not None
    assert price.output_usd_per_mtok is not None
    paid = (price.input_usd_per_mtok * inputs + price.output_usd_per_mtok * outputs) / 1e6
    assert isclose(paid, usd, rel_tol=1e-9)
    assert isclose(price.blended_usd_per_mtok * (inputs + outputs) / 1e6, usd, rel_tol=1e-9)


def test_an_unknown_split_gives_only_the_blended_price() -> None:
    price = token_price(10, input_tokens=1e6, output_tokens=1e6, prefill_fraction=None)
    assert (price.input_usd_per_mtok, price.output_usd_per_mtok, price.blended_usd_per_mtok) == (None, None, 5)
    assert token_price(10, input_tokens=0, output_tokens=0, prefill_fraction=0.5).blended_usd_per_mtok == inf
