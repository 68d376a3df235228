"""Nodes that are owned are kept while they pay; contracts bind for whole terms; orders take time."""

import pytest

from penstock.economics.bill_line import Item, total_usd
from penstock.errors import UsageError
from penstock.planning.optimizer.build_problem import build_problem
from penstock.planning.optimizer.node_costs import periods_of, terms_of, with_steps
from penstock.planning.optimizer.problem import Offer
from penstock.planning.plan_result import Answer, NoFleet
from penstock.planning.verification.serving_fleet import Check, ServingFleet
from small_plans import PLAIN, plan_of, resolved, solved

H200 = "\n".join(line for line in PLAIN.splitlines() if "mi300x" not in line) + "\n"
GROWING = H200.replace("mean_load: 50%", "mean_load: 50%\n    growth_per_year: 60%")
OWNED = "\nowned: [{id: h200, nodes: 4, age_years: 1, book_usd: 200000, resale_usd: 120000}]\n"
HOURS = 8760


def answer_of(text: str) -> Answer:
    answer = solved(text).answer
    assert isinstance(answer, Answer)
    return answer


def offer_of(text: str) -> Offer:
    (offer,) = build_problem(resolved(text), ()).offers
    return offer


def contracts(*terms: tuple[int, float]) -> str:
    written = ", ".join(f"{{months: {months}, usd_per_hour: {usd}}}" for months, usd in terms)
    return f"contracts: [{written}], "


def with_contracts(text: str, *terms: tuple[int, float]) -> str:
    return text.replace("node_kw: 10, tp", f"{contracts(*terms)}node_kw: 10, tp")


def test_a_node_that_is_kept_costs_its_running_and_the_sale_it_forgoes() -> None:
    text = H200 + OWNED
    terms = terms_of(resolved(text))
    (entry,) = terms.resolved.plan.owned
    lines = {line.item: line.usd for line in terms.bill_kept(entry, 0)}
    # No interest: $120,000 today and nothing at the end of three years.
    assert lines[Item.KEPT] == pytest.approx(120_000)
    assert lines[Item.HOSTING] == pytest.approx(10 * 200 * 12 * 3)
    assert lines[Item.FAILURES] == pytest.approx(8 * 0.05 * 32_000 * 3)
    assert not {Item.SILICON, Item.HOST, Item.NETWORK} & lines.keys()


def test_an_owned_fleet_is_kept_and_the_same_plan_bought_new_costs_more() -> None:
    owned, new = answer_of(GROWING + OWNED + "acquire: [buy]\n"), answer_of(GROWING + "acquire: [buy]\n")
    kept = {pool.period: pool.kept_nodes for pool in owned.winner.mix.pools}
    assert kept[0] == min(4, sum(pool.nodes for pool in new.winner.mix.pools if pool.period == 0))
    assert owned.winner.cost.total_usd < new.winner.cost.total_usd
    assert owned.winner.cash.capex_usd < new.winner.cash.capex_usd
    assert owned.winner.cost.total_usd == pytest.approx(owned.winner.mix.cost_usd, rel=1e-9)


def test_what_is_owned_is_explained_beside_the_plan_without_it() -> None:
    owned = answer_of(GROWING + OWNED + "acquire: [buy]\n")
    new = answer_of(GROWING + "acquire: [buy]\n")
    assert owned.owned is not None
    assert owned.owned.without_usd == pytest.approx(new.winner.cost.total_usd, rel=2e-3)
    # Keeping a node is billed the sale it forgoes, so what is owned is worth its sale beside the difference.
    saved_usd = new.winner.cost.total_usd - owned.winner.cost.total_usd + 4 * 120_000
    assert owned.owned.saved_usd == pytest.approx(saved_usd, rel=2e-2)
    (entry,) = owned.owned.nodes
    assert (entry.nodes, entry.accelerator) == (4, "h200_sxm")
    assert entry.new_usd is not None
    assert entry.keeping_usd < entry.new_usd
    assert new.owned is None


def test_nodes_are_sold_where_something_cheaper_serves() -> None:
    """A node nobody would pay for is kept; one that brings more than a new one costs is let go."""
    dear = OWNED.replace("resale_usd: 120000", "resale_usd: 2000000")
    sold = answer_of(H200 + dear)
    assert sum(pool.kept_nodes for pool in sold.winner.mix.pools) == 0
    assert sold.winner.cash.years[0].sales_usd == pytest.approx(4 * 2_000_000)


def test_nodes_whose_use_ends_serve_no_longer() -> None:
    text = GROWING + OWNED.replace("nodes: 4,", "nodes: 4, until: 2028-07-01,")
    periods = periods_of(plan_of(text))
    # Yearly steps, and one where the use ends: a year and a half after the start.
    assert [start for start, _ in periods] == pytest.approx([0, 1, 547 / 365.25, 2], abs=1e-9)
    late = [pool for pool in answer_of(text).winner.mix.pools if periods[pool.period][0] > 1.4]
    assert late
    assert all(pool.kept_nodes == 0 for pool in late)


def test_a_part_that_is_only_owned_is_kept_and_never_bought() -> None:
    text = H200.replace("id: h200,", "id: mi300x,") + OWNED
    answer = answer_of(text)
    assert {key[0] for key in answer.winner.mix.purchases} <= {"mi300x"}
    assert "h200_sxm" in {offer.accelerator for offer in build_problem(resolved(text), ()).offers}


def test_what_is_owned_comes_in_whole_nodes_or_single_devices_and_at_a_known_site() -> None:
    assert resolved(H200 + "\nowned: [32xh200]\n").plan.owned[0].nodes == 4
    (single,) = resolved(H200 + "\nowned: [{id: 30xh200, resale_usd: 60k}]\n").plan.owned
    assert (single.nodes, single.unit_devices, single.largest_server) == (30, 1, 8)
    assert single.resale_usd.value == pytest.approx(60_000 / 8)
    with pytest.raises(UsageError, match="'moon' is not a site of the plan; use one of main"):
        resolved(H200 + "\nowned: [{id: h200, nodes: 2, site: moon}]\n")


@pytest.mark.parametrize(("devices", "nodes_sold"), [(4, 1), (8, 1), (9, 9 / 8), (12, 1.5), (16, 2)])
def test_a_device_beyond_whole_nodes_is_sold_for_its_share(devices: int, nodes_sold: float) -> None:
    (owned,) = resolved(H200 + f"\nowned: [{{id: {devices}xh200, resale_usd: 80k, book_usd: 120k}}]\n").plan.owned
    assert owned.nodes is not None
    assert owned.nodes * owned.resale_usd.value == pytest.approx(80_000 * nodes_sold)
    assert owned.nodes * (owned.book_usd or 0) == pytest.approx(120_000 * nodes_sold)


def test_a_contract_is_paid_to_the_end_of_its_term() -> None:
    offer = offer_of(with_contracts(GROWING, (12, 2.0), (24, 1.5), (36, 1.0)))
    year, two, three = offer.contracts
    assert year.spans == (1, 1, 1)
    assert two.spans == (2, 2, 1)
    assert three.spans == (3, 2, 1)
    assert year.node_usd == pytest.approx([8 * 2.0 * HOURS] * 3)
    # Begun in the second year it outlasts the plan and is paid all the same.
    assert three.node_usd == pytest.approx([8 * 1.0 * HOURS * 3] * 3)


def test_a_short_contract_is_renewed_over_a_long_period() -> None:
    offer = offer_of(with_contracts(H200, (12, 2.0)))
    assert offer.contracts[0].node_usd == pytest.approx([8 * 2.0 * HOURS * 3])
    longer = offer_of(with_contracts(H200.replace("horizon_years: 3", "horizon_years: 2.5"), (12, 2.0)))
    assert longer.contracts[0].node_usd == pytest.approx([8 * 2.0 * HOURS * 3])


def test_the_cheapest_way_to_have_a_node_is_taken() -> None:
    by_hour, by_term = answer_of(H200), answer_of(with_contracts(H200, (36, 1.0)))
    assert by_term.winner.cost.total_usd < by_hour.winner.cost.total_usd
    pool = by_term.winner.mix.pools[0]
    assert pool.nodes == sum(pool.contract_nodes)
    assert by_term.winner.cost.total_usd == pytest.approx(by_term.winner.mix.cost_usd, rel=1e-9)
    (order,) = by_term.winner.cash.orders
    assert order.months == 36
    assert order.usd == pytest.approx(pool.nodes * 8 * HOURS * 3)


def test_an_offer_more_never_costs_more() -> None:
    costs = [
        answer_of(text).winner.cost.total_usd
        for text in (
            GROWING,
            with_contracts(GROWING, (12, 2.6)),
            with_contracts(GROWING, (12, 2.6), (36, 2.2)),
            with_contracts(GROWING, (12, 2.6), (36, 2.2)) + OWNED.replace("resale_usd: 120000", "resale_usd: 0"),
        )
    ]
    assert costs == sorted(costs, reverse=True)


def test_what_cannot_be_ordered_in_time_is_bridged_or_there_is_no_fleet() -> None:
    late = H200.replace("{id: h200,", "{id: h200, lead_weeks: 26,") + "\norders_from: 2027-01-01\n"
    starts = [start for start, _ in periods_of(plan_of(late))]
    assert starts == pytest.approx([0, 182 / 365.25])
    mix = answer_of(late).winner.mix
    assert all(key[-1] > 0 for key in mix.purchases)
    assert isinstance(solved(late + "acquire: [buy]\n").answer, NoFleet)


def test_a_quote_for_a_server_pays_for_its_host() -> None:
    server = H200.replace("buy_usd: 32000", "node_usd: 320000")
    terms = terms_of(resolved(server))
    accelerator, site = terms.find("h200_sxm", "main")
    lines = {line.item: line.usd for line in terms.bill_bought(accelerator, site, 0, 0)}
    lost = 1 - 0.25
    assert lines[Item.SILICON] == pytest.approx(320_000 * lost)
    assert lines[Item.HOST] == 0


def test_prices_that_rise_make_later_nodes_dearer_and_nothing_else() -> None:
    rising = GROWING.replace("resale: 100%", "resale: 100%, price_change_per_year: 20%")
    before, after = offer_of(GROWING), offer_of(rising)
    assert after.rent_usd is not None
    assert before.rent_usd is not None
    assert after.rent_usd == pytest.approx([before.rent_usd[0] * 1.2**year for year in range(3)])
    assert after.tiers[0].node_usd[0] == before.tiers[0].node_usd[0]
    assert after.tiers[0].node_usd[2] > before.tiers[0].node_usd[2]


def test_licences_are_paid_by_the_device_and_the_year() -> None:
    licensed = H200.replace("nvidia: {engineers: 0}", "nvidia: {engineers: 0, licence_usd_per_device_year: 4500}")
    terms = terms_of(resolved(licensed))
    accelerator, site = terms.find("h200_sxm", "main")
    for lines in (terms.bill_bought(accelerator, site, 0, 0), terms.bill_rented(accelerator, site, 0)):
        assert total_usd(tuple(line for line in lines if line.item is Item.LICENCES)) == pytest.approx(8 * 4500 * 3)


def test_newer_engines_shrink_the_fleet_of_later_years_and_never_the_first() -> None:
    faster = GROWING.replace("nvidia: {engineers: 0}", "nvidia: {engineers: 0, software_gain_per_year: 30%}")
    before, after = answer_of(GROWING).winner.mix, answer_of(faster).winner.mix
    assert after.nodes_of("h200_sxm", 0) == before.nodes_of("h200_sxm", 0)
    assert after.nodes_of("h200_sxm", 2) < before.nodes_of("h200_sxm", 2)
    problem = build_problem(resolved(faster), ())
    assert problem.gains["h200_sxm"] == pytest.approx((1, 1.3, 1.69))


def test_a_fleet_that_counts_on_newer_engines_is_simulated_with_as_much_less_to_do() -> None:
    seen: dict[int, float] = {}

    def verify(fleet: ServingFleet) -> tuple[Check, ...]:
        seen[fleet.period] = sum(stream.requests_per_s for stream in fleet.streams)
        assert all(sum(stream.shares.values()) == pytest.approx(1) for stream in fleet.streams)
        return (Check(workload="chat", attainment_fraction=1.0, required_fraction=0.95),)

    faster = GROWING.replace("nvidia: {engineers: 0}", "nvidia: {engineers: 0, software_gain_per_year: 30%}")
    solved(faster, verify_of=verify, spread=0.0)
    # Demand grows by 60% a year, counted at the end of each, and engines by 30%, counted at its start; 80% are used.
    assert seen == pytest.approx({0: 50 * 1.6, 1: 50 * 1.6**2 / 1.3, 2: 50 * 1.6**3 / 1.3**2})


RACKS = H200.replace("{id: h200, buy_usd: 32000, rent_usd_per_hour: 3,", "{id: gb200, buy_usd: 40000, RENT ")
PER_DEVICE = {"gb200": 10.0}


def test_a_rack_whose_links_span_it_is_bought_whole() -> None:
    bought = RACKS.replace("RENT", "") + "acquire: [buy]\n"
    few = solved(bought, PER_DEVICE, spread=0.0).answer
    many = solved(bought.replace("requests_per_s: 40", "requests_per_s: 800"), PER_DEVICE, spread=0.0).answer
    for answer, racks in ((few, 1), (many, 2)):
        assert isinstance(answer, Answer)
        # 40 requests/s of 1,280 tokens take 7 devices at 80% and a spare tray; 800 take 128 and one: two racks of 72.
        assert sum(answer.winner.mix.purchases.values()) == 18 * racks
        assert answer.winner.cash.capex_usd == pytest.approx(18 * racks * 4 * (42_000 + 70_000 / 8))


def test_trays_of_a_rack_are_rented_one_by_one() -> None:
    answer = solved(RACKS.replace("RENT", "rent_usd_per_hour: 4,") + "acquire: [buy, rent]\n", PER_DEVICE).answer
    assert isinstance(answer, Answer)
    assert not answer.winner.mix.purchases
    assert {pool.rented_nodes for pool in answer.winner.mix.pools} == {3}


IN_TURN = with_contracts(H200, (12, 1.9), (24, 1.6)) + "acquire: [contract]\n"


def test_contracts_of_two_terms_follow_one_another_where_that_is_cheapest() -> None:
    """Two years and then one, in a plan of three whose demand stays: no term renewed to the end is as cheap."""
    answer = answer_of(IN_TURN)
    signed = {(pool.period, pool.contract_nodes) for pool in answer.winner.mix.pools}
    nodes = max(pool.nodes for pool in answer.winner.mix.pools)
    assert signed == {(0, (0, nodes)), (1, (0, nodes)), (2, (nodes, 0))}
    rent = sum(line.usd for line in answer.winner.cost.lines if line.item is Item.RENT)
    spares = sum(line.usd for line in answer.winner.cost.lines if line.item is Item.SPARES)
    assert rent + spares == pytest.approx(nodes * 8 * HOURS * (2 * 1.6 + 1.9))


def test_terms_that_cover_the_plan_need_no_step() -> None:
    for terms in (((12, 1.9), (36, 1.6)), ((12, 1.5), (24, 1.6)), ((36, 1.6),)):
        plan = with_steps(plan_of(with_contracts(H200, *terms) + "acquire: [contract]\n"))
        assert periods_of(plan) == ((0, 3),)


@pytest.mark.parametrize("change", [-0.2, 0.2])
def test_what_is_rented_later_costs_what_it_costs_then_though_nothing_else_changes(change: float) -> None:
    text = with_contracts(H200, (12, 1.9)).replace("finance: {", f"finance: {{price_change_per_year: {change}, ")
    once, yearly = (offer_of(entry) for entry in (text, text + "step_months: 12\n"))
    node_hour_usd = 8 * HOURS
    yearly_usd = [1.9 * node_hour_usd * (1 + change) ** year for year in range(3)]
    assert [contract.node_usd for contract in yearly.contracts] == [pytest.approx(yearly_usd)]
    assert once.contracts[0].node_usd == pytest.approx((sum(yearly_usd),))
    assert once.rent_usd == pytest.approx((sum(3 / 1.9 * usd for usd in yearly_usd),))


def test_signing_binds_to_one_term_and_not_to_those_it_is_renewed_for() -> None:
    answer = answer_of(with_contracts(H200, (12, 1.9)) + "acquire: [contract]\n")
    (order,) = answer.winner.cash.orders
    assert order.months == 12
    assert order.usd == pytest.approx(order.devices * HOURS * 1.9)
    assert sum(year.rent_usd for year in answer.winner.cash.years) == pytest.approx(3 * order.usd)


def test_stack_by_device_are_paid_for_the_plan_and_not_for_the_rest_of_a_contract() -> None:
    text = with_contracts(H200, (36, 1.6)).replace("horizon_years: 3", "horizon_years: 2")
    terms = terms_of(resolved(text.replace("nvidia: {engineers: 0}", "nvidia: {engineers_per_1000_devices: 10}")))
    (accelerator,), (site,) = terms.resolved.plan.accelerators, terms.resolved.plan.sites
    lines = {line.item: line.usd for line in terms.bill_contracted(accelerator, site, 0, 0)}
    assert lines[Item.RENT] == pytest.approx(8 * HOURS * 3 * 1.6)
    assert lines[Item.SOFTWARE] == pytest.approx(8 * 0.01 * 300_000 * 2)
