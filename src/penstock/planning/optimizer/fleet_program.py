"""Builds the integer program of a planning problem; variables are nodes, replicas and shares of each length bucket."""

from dataclasses import dataclass, field

from penstock.planning.optimizer.milp import Milp
from penstock.planning.optimizer.problem import DemandKey, Offer, OfferKey, Problem, Restriction


@dataclass(slots=True)
class FleetProgram:
    """An integer program, with a mapping from each decision to its variable."""

    problem: Problem
    restriction: Restriction
    highest_need: float = 1.0
    """Highest demand, relative to the estimated demand and speed, that the fleet may have to serve."""
    milp: Milp = field(default_factory=Milp)
    bought: dict[tuple[OfferKey, int, int], int] = field(default_factory=dict)
    rented: dict[tuple[OfferKey, int], int] = field(default_factory=dict)
    contracted: dict[tuple[OfferKey, int, int], int] = field(default_factory=dict)
    kept: dict[tuple[OfferKey, int], int] = field(default_factory=dict)
    used: dict[tuple[OfferKey, int], int] = field(default_factory=dict)
    count: dict[tuple[OfferKey, str, int], int] = field(default_factory=dict)
    share: dict[tuple[OfferKey, str, DemandKey, int], int] = field(default_factory=dict)
    offers: tuple[Offer, ...] = ()

    def __post_init__(self) -> None:
        vendors, accelerators = self.restriction.only_vendors, self.restriction.only_accelerators
        self.offers = tuple(
            offer
            for offer in self.problem.offers
            if (vendors is None or offer.vendor in vendors)
            and (accelerators is None or offer.accelerator in accelerators)
        )
        for offer in self.offers:
            self._nodes(offer)
            for period in self.serving_periods(offer):
                self._placement(offer, period)
        self._price_levels()
        self._serve_everything()
        self._sites()
        self._limit_nodes()
        self._vendors()
        self._other_supports()

    # Variables.

    def node_bound(self, offer: Offer) -> int:
        """Return an upper bound on the nodes of an offer."""
        return self.problem.node_bound(offer, self.highest_need)

    def serving_periods(self, offer: Offer) -> range:
        """Return the periods in which the offer's nodes can serve: all periods if some nodes are owned already."""
        return range(offer.first_period if offer.kept is None else 0, self.problem.periods)

    def _nodes(self, offer: Offer) -> None:
        most = self.node_bound(offer)
        for period in self.serving_periods(offer):
            self.used[offer.key, period] = self.milp.variable(upper=1, whole=True)
            self._keep(offer, period)
            if period < offer.first_period:
                continue
            for number, tier in enumerate(offer.tiers if period >= offer.first_bought else ()):
                self.bought[offer.key, number, period] = self._lots(offer, tier.node_usd[period], most)
            if offer.rent_usd is not None and offer.rent_is_planned:
                self.rented[offer.key, period] = self.milp.variable(cost=offer.rent_usd[period], upper=most, whole=True)
            for number, contract in enumerate(offer.contracts):
                if not contract.signable:
                    continue
                self.contracted[offer.key, number, period] = self.milp.variable(
                    cost=contract.node_usd[period], upper=most, whole=True
                )

    def _lots(self, offer: Offer, node_usd: float, most: int) -> int:
        """Add a variable for nodes bought, in whole lots."""
        nodes = self.milp.variable(cost=node_usd, upper=most, whole=True)
        if offer.lot_nodes > 1:
            lots = self.milp.variable(upper=most // offer.lot_nodes, whole=True)
            self.milp.row([(nodes, 1.0), (lots, -float(offer.lot_nodes))], at_least=0, at_most=0)
        return nodes

    def _keep(self, offer: Offer, period: int) -> None:
        """Add a variable for the owned nodes kept in a period.

        The variable is at most the variable of the previous period, because sold nodes do not return.
        """
        kept = offer.kept
        if kept is None or period >= len(kept.node_usd):
            return
        now = self.milp.variable(cost=kept.node_usd[period], upper=kept.nodes, whole=True)
        before = self.kept.get((offer.key, period - 1))
        self.kept[offer.key, period] = now
        if before is not None:
            self.milp.row([(now, 1.0), (before, -1.0)], at_most=0)

    def _placement(self, offer: Offer, period: int) -> None:
        """Add the replicas of one kind on a pool's nodes, with the load they serve and the devices they occupy."""
        problem, most = self.problem, self.node_bound(offer)
        taken: list[tuple[int, float]] = []
        for replica in problem.replicas_on(offer):
            loads = []
            for demand in problem.demands_of(replica):
                if demand.requests_per_s[period] <= 0:
                    continue
                variable = self.milp.variable(upper=1)
                self.share[offer.key, replica.id, demand.key, period] = variable
                needed = demand.requests_per_s[period] / problem.rate_of(replica, demand.key[1], period)
                loads.append((variable, needed))
            if not loads:
                continue
            number = self.milp.variable(upper=most * offer.devices // replica.devices, whole=True)
            self.count[offer.key, replica.id, period] = number
            carried = problem.allowed_utilisation(replica.id, period) * self.carried_by(offer.key, replica.id, period)
            self.milp.row([*loads, (number, -carried)], at_most=0)
            taken.append((number, float(replica.devices)))
        nodes = [(variable, -float(offer.devices)) for variable in self._in_service(offer, period)]
        used = self.used[offer.key, period]
        self.milp.row([*taken, *nodes, (used, float(problem.spare_nodes * offer.devices))], at_most=0)
        # A pool that serves is marked as used, and a used pool has at least one node. Spares and engineers depend on
        # that mark.
        self.milp.row([*taken, (used, -float(most * offer.devices))], at_most=0)
        self.milp.row([*((variable, 1.0) for variable in self._in_service(offer, period)), (used, -1.0)], at_least=0)

    def carried_by(self, offer: OfferKey, name: str, period: int) -> float:
        """Return the factor on a replica's capacity in a pool and period."""
        return self.problem.carried.get((offer, name, period), 1.0)

    def _owned_variables(self, offer: Offer, period: int) -> list[int]:
        kept = self.kept.get((offer.key, period))
        bought = [v for (key, _, begun), v in self.bought.items() if key == offer.key and begun <= period]
        return [*([] if kept is None else [kept]), *bought]

    def contract_variables(self, offer: Offer, number: int, period: int) -> list[int]:
        """Return the variables of the nodes that one contract of an offer provides in a period."""
        spans = offer.contracts[number].spans
        return [
            variable
            for (key, which, begun), variable in self.contracted.items()
            if (key, which) == (offer.key, number) and begun <= period < begun + spans[begun]
        ]

    def _in_service(self, offer: Offer, period: int) -> list[int]:
        rented = self.rented.get((offer.key, period))
        contracts = (self.contract_variables(offer, number, period) for number in range(len(offer.contracts)))
        on_contract = [variable for found in contracts for variable in found]
        return [*self._owned_variables(offer, period), *on_contract, *([] if rented is None else [rented])]

    # Rules.

    def _price_levels(self) -> None:
        """Require one price level for all nodes of an accelerator, and the minimum volume of that level."""
        for accelerator in dict.fromkeys(offer.accelerator for offer in self.offers):
            offers = [offer for offer in self.offers if offer.accelerator == accelerator and offer.tiers]
            if not offers or (len(offers[0].tiers) == 1 and offers[0].tiers[0].min_devices <= 0):
                continue
            levels = []
            for number, tier in enumerate(offers[0].tiers):
                chosen = self.milp.variable(upper=1, whole=True)
                levels.append((chosen, 1.0))
                volume = [
                    (variable, float(offer.devices))
                    for offer in offers
                    for (key, level, _), variable in self.bought.items()
                    if key == offer.key and level == number
                ]
                most = sum(self.node_bound(offer) * offer.devices for offer in offers) * self.problem.periods
                self.milp.row([*volume, (chosen, -float(most))], at_most=0)
                self.milp.row([*volume, (chosen, -float(tier.min_devices))], at_least=0)
            self.milp.row(levels, at_most=1)

    def _serve_everything(self) -> None:
        for demand in self.problem.demands:
            for period in range(self.problem.periods):
                if demand.requests_per_s[period] > 0:
                    served = [v for (_, _, key, at), v in self.share.items() if (key, at) == (demand.key, period)]
                    self.milp.row([(variable, 1.0) for variable in served], at_least=1, at_most=1)

    def _sites(self) -> None:
        """Limit the power of owned nodes per site; rented nodes do not draw the site's power."""
        for site, watts in self.problem.site_watts.items():
            for period in range(self.problem.periods):
                drawn = [
                    (variable, offer.node_watts)
                    for offer in self.offers
                    if offer.site == site
                    for variable in self._owned_variables(offer, period)
                ]
                self.milp.row(drawn, at_most=watts)

    def _limit_nodes(self) -> None:
        for accelerator, limit in self.problem.max_nodes.items():
            for period in range(self.problem.periods):
                nodes = [
                    (variable, offer.nodes_per_unit)
                    for offer in self.offers
                    if offer.accelerator == accelerator
                    for variable in self._in_service(offer, period)
                ]
                self.milp.row(nodes, at_most=limit)

    def _vendors(self) -> None:
        """Charge engineers for each vendor used, require enough vendors, and cap each vendor's share."""
        problem, required = self.problem, self.restriction.require_vendors
        vendors = tuple(dict.fromkeys(offer.vendor for offer in self.offers))
        counted: dict[int, list[tuple[int, float]]] = {}
        for vendor in vendors:
            for period in range(problem.periods):
                costs = problem.vendor_usd.get(vendor)
                present = self.milp.variable(cost=costs[period] if costs else 0.0, upper=1, whole=True)
                for offer in self.offers:
                    used = self.used.get((offer.key, period))
                    if offer.vendor == vendor and used is not None:
                        self.milp.row([(present, 1.0), (used, -1.0)], at_least=0)
                if problem.min_vendors > 1 or vendor in required:
                    counts = self.milp.variable(upper=1, whole=True)
                    carried = self._vendor_load(vendor, period)
                    whole = self._whole_load(period)
                    self.milp.row([*carried, (counts, -problem.min_vendor_share * whole)], at_least=0)
                    counted.setdefault(period, []).append((counts, 1.0))
                    if vendor in required:
                        self.milp.row([(counts, 1.0)], at_least=1)
                self._vendor_limit(vendor, period)
        for vendor in required - set(vendors):
            self.milp.row([], at_least=1)  # a required vendor without any offer makes the problem infeasible
            del vendor
        if problem.min_vendors > 1:
            for period in range(problem.periods):
                self.milp.row(counted.get(period, []), at_least=problem.min_vendors)

    def _vendor_load(self, vendor: str, period: int) -> list[tuple[int, float]]:
        weight = {demand.key: demand.requests_per_s[period] * demand.tokens for demand in self.problem.demands}
        keys = {offer.key for offer in self.offers if offer.vendor == vendor}
        return [(v, weight[demand]) for (key, _, demand, at), v in self.share.items() if key in keys and at == period]

    def _whole_load(self, period: int) -> float:
        return sum(demand.requests_per_s[period] * demand.tokens for demand in self.problem.demands)

    def _vendor_limit(self, vendor: str, period: int) -> None:
        limit = self.problem.max_vendor_share
        if limit is None:
            return
        if self.problem.share_of == "load":
            self.milp.row(self._vendor_load(vendor, period), at_most=limit * self._whole_load(period))
            return
        # Count devices the load needs, not devices installed: otherwise idle devices of another vendor would satisfy
        # the rule.
        kinds = {replica.id: replica for replica in self.problem.replicas}
        rates = {demand.key: demand.requests_per_s[period] for demand in self.problem.demands}
        vendors = {offer.key: offer.vendor for offer in self.offers}
        terms = []
        for (key, name, demand, at), variable in self.share.items():
            if at == period:
                own = (1.0 if vendors[key] == vendor else 0.0) - limit
                each = self.problem.rate_of(kinds[name], demand[1], at)
                taken = rates[demand] / each / self.carried_by(key, name, at) * kinds[name].devices
                terms.append((variable, own * taken))
        self.milp.row(terms, at_most=0)

    def _other_supports(self) -> None:
        """Forbid fleets that use all accelerators of an earlier fleet, so that each runner-up lacks one of them."""
        for support in self.restriction.not_supports:
            present = []
            for accelerator in sorted(support):
                here = self.milp.variable(upper=1, whole=True)
                present.append((here, 1.0))
                for (key, _), used in self.used.items():
                    if key[0] == accelerator:
                        self.milp.row([(here, 1.0), (used, -1.0)], at_least=0)
            self.milp.row(present, at_most=len(present) - 1)
