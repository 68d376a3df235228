"""A bill is the sum of lines anybody can check; each test's name is the law."""

from dataclasses import replace
from math import isclose

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.economics import Finance, Item, Ownership, Site, StackCosts, ownership_bill, people, waterfall
from penstock.economics.bill_line import Line, total_usd
from penstock.economics.rent import rent_bill
from penstock.economics.tco import as_spares, by_item, stack_by_device

law = settings(max_examples=200, deadline=None)
dollars = st.floats(0, 1e5)
fractions = st.floats(0, 1)

TERMS = Ownership(
    label="part",
    devices=8,
    device_usd=20_000,
    host_usd=60_000,
    network_usd_per_device=2_000,
    node_watts=10_000,
    serving_watts=10_000,
    idle_fraction=0.3,
    load_fraction=0.5,
    annual_failure_fraction=0.04,
)
SITE = Site(name="site", usd_per_kwh=0.1, pue=1.25, hosting_usd_per_kw_month=150)
STACK = StackCosts(
    vendor="amd",
    engineers=2,
    engineers_per_1000_devices=1,
    engineer_usd_per_year=280_000,
    support_usd_per_device_year=1_000,
)
PLAIN = Finance(discount_rate_fraction=0, depreciation_years=3)


def billed(
    terms: Ownership = TERMS, *, site: Site = SITE, finance: Finance = PLAIN, nodes: float = 2
) -> tuple[Line, ...]:
    return ownership_bill(terms, nodes=nodes, period_years=(0, 3), site=site, stack=STACK, finance=finance)


def test_three_plain_years_of_two_nodes_by_hand() -> None:
    sums = by_item(billed())
    average_kw = 10 * (0.3 + 0.7 * 0.5)
    assert isclose(sums[Item.SILICON], 2 * 8 * 20_000)
    assert isclose(sums[Item.HOST], 2 * 60_000)
    assert isclose(sums[Item.NETWORK], 2 * 8 * 2_000)
    assert isclose(sums[Item.POWER], 2 * average_kw * 8760 * 3 * 0.1)
    assert isclose(sums[Item.COOLING], 2 * average_kw * 8760 * 3 * 0.1 * 0.25)
    assert isclose(sums[Item.HOSTING], 2 * 10 * 150 * 12 * 3)
    assert isclose(sums[Item.SUPPORT], 2 * 8 * 1_000 * 3)
    assert isclose(sums[Item.FAILURES], 2 * 8 * 0.04 * 20_000 * 3)
    assert isclose(total_usd(people(STACK, period_years=(0, 3), finance=PLAIN)), 2 * 280_000 * 3)
    by_size = stack_by_device(STACK, devices=16, period_years=(0, 3), finance=PLAIN)
    assert isclose(total_usd(by_size), 16 / 1000 * 280_000 * 3)
    hours = rent_bill("part", nodes=2, devices=8, usd_per_device_hour=2, period_years=(0, 3), finance=PLAIN)
    assert isclose(total_usd(hours), 2 * 8 * 2 * 8760 * 3)


@law
@given(rate=st.floats(0, 0.5), years=st.floats(1, 10), nodes=st.integers(0, 500), load=fractions)
def test_every_line_is_its_formula_evaluated_on_its_inputs(rate: float, years: float, nodes: int, load: float) -> None:
    finance = Finance(discount_rate_fraction=rate, depreciation_years=years)
    for line in billed(replace(TERMS, load_fraction=load), finance=finance, nodes=nodes):
        by_hand = eval(line.formula, {"__builtins__": {}}, dict(line.inputs))  # noqa: S307 - formulas of this package
        assert isclose(line.usd, by_hand, rel_tol=1e-12, abs_tol=1e-9), line


@law
@given(more=dollars, field=st.sampled_from(["device_usd", "host_usd", "network_usd_per_device", "node_watts"]))
def test_a_dearer_or_hungrier_node_never_costs_less(more: float, field: str) -> None:
    dearer = replace(TERMS, **{field: getattr(TERMS, field) + more})
    assert total_usd(billed(dearer)) >= total_usd(billed())


@law
@given(more=st.floats(0, 10), field=st.sampled_from(["usd_per_kwh", "pue", "hosting_usd_per_kw_month"]))
def test_a_dearer_site_never_costs_less(more: float, field: str) -> None:
    dearer = replace(SITE, **{field: getattr(SITE, field) + more})
    assert total_usd(billed(site=dearer)) >= total_usd(billed())


@law
@given(rate=st.floats(0, 0.3), nodes=st.integers(1, 1000))
def test_a_bill_is_linear_in_nodes(rate: float, nodes: int) -> None:
    finance = Finance(discount_rate_fraction=rate, depreciation_years=4)
    one = total_usd(billed(finance=finance, nodes=1))
    assert isclose(total_usd(billed(finance=finance, nodes=nodes)), nodes * one, rel_tol=1e-9)


@law
@given(rate=st.floats(0, 0.3), spare=st.integers(1, 5))
def test_the_waterfall_ends_at_the_sum_of_the_lines_and_spares_hide_nothing(rate: float, spare: int) -> None:
    finance = Finance(discount_rate_fraction=rate, depreciation_years=4)
    lines = (*billed(finance=finance), as_spares("spare", billed(finance=finance, nodes=spare), nodes=spare))
    steps = waterfall(lines)
    assert isclose(steps.all_in_usd, total_usd(lines))
    assert isclose(steps.all_in_usd, total_usd(billed(finance=finance, nodes=2 + spare)))
    assert steps.silicon_usd <= steps.all_in_usd
    assert [step.item for step in steps.steps] == [item for item in Item if item in by_item(lines)]
