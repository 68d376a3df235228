"""Node power with its source, and the price of tokens."""

from dataclasses import replace
from math import inf, isclose

from hypothesis import given
from hypothesis import strategies as st

from penstock.catalog import load_accelerator
from penstock.economics.node_power import DrawUnderLoad, average_watts, node_power
from penstock.economics.token_price import token_price

MEASURED = DrawUnderLoad(median_fraction=0.6, low_fraction=0.4, high_fraction=0.9, grounds="some cells")


def test_a_published_node_figure_is_used_as_it_is() -> None:
    power = node_power(load_accelerator("h100"))
    assert power is not None
    assert (power.node_watts, power.basis) == (10_200, "catalog")


def test_a_node_without_a_figure_is_its_boards_and_a_host_like_the_published_ones() -> None:
    power = node_power(load_accelerator("mi355x"))
    assert power is not None
    # DGX H100 and B300 are the middle two of four: 4,600 and 5,700 W beside their boards.
    assert power.basis == "derived"
    assert isclose(power.node_watts, 8 * 1_400 + (4_600 + 5_700) / 2)


def test_a_tray_of_four_has_the_host_of_a_tray() -> None:
    power = node_power(load_accelerator("gb200"))
    assert power is not None
    assert isclose(power.node_watts, 4 * 1_200 + (7_500 - 4 * 1_400))
    # NVIDIA's power registry states 6,667 W for a node of this kind.
    assert isclose(power.node_watts, 6_667, rel_tol=0.01)


def test_a_serving_node_is_its_host_and_what_its_devices_were_measured_to_draw() -> None:
    power = node_power(load_accelerator("h100"), MEASURED)
    assert power is not None
    host = 10_200 - 8 * 700
    assert isclose(power.serving_watts, host + 8 * 700 * 0.6)
    assert isclose(power.serving_low_watts, host + 8 * 700 * 0.4)
    assert isclose(power.serving_high_watts, host + 8 * 700 * 0.9)
    assert "60% of board power" in power.serving_note
    assert "some cells" in power.serving_note


def test_a_given_node_figure_rules_and_keeps_its_host() -> None:
    power = node_power(load_accelerator("mi300x"), MEASURED, given_watts=9_000)
    assert power is not None
    assert (power.node_watts, power.basis) == (9_000, "given")
    assert isclose(power.serving_watts, 9_000 - 8 * 750 * 0.4)


def test_devices_nobody_measured_are_billed_at_the_maximum() -> None:
    power = node_power(load_accelerator("h100"))
    assert power is not None
    assert power.serving_watts == power.node_watts
    assert "maximum" in power.serving_note


def test_without_any_power_figure_the_answer_is_none() -> None:
    accelerator = load_accelerator("mi300x")
    sources = tuple(replace(s, fields=tuple(f for f in s.fields if f != "tdp_watts")) for s in accelerator.sources)
    dark = replace(accelerator, tdp_watts=None, sources=tuple(source for source in sources if source.fields))
    assert node_power(dark, MEASURED) is None


def test_average_power_runs_from_idle_to_serving() -> None:
    assert average_watts(10_000, idle_watts=3_000, load_fraction=0) == 3_000
    assert average_watts(10_000, idle_watts=3_000, load_fraction=0.5) == 6_500
    assert average_watts(10_000, idle_watts=3_000, load_fraction=7) == 10_000
    assert average_watts(2_000, idle_watts=3_000, load_fraction=0) == 2_000


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
