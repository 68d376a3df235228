"""Who has heard nothing of an endpoint still knows what it sent there itself, and shares alike among alike."""

import numpy as np
import pytest

from penstock.routing.baselines.all_policies import POLICIES
from penstock.routing.policy_function import Pick
from penstock.routing.records import Records
from penstock.simulation.outcome import Outcome
from penstock.simulation.run import simulate
from penstock.simulation.run_options import Options, RouterVisibility, Routing
from penstock.workload import Requests, Slo, SloClass
from simulated import conversation_lengths, pool, requests

PROMISED = (SloClass(name="all", share_fraction=1.0, slo=Slo(ttft_s=1.0, tpot_s=0.05)),)
NOTHING_ARRIVES = RouterVisibility(report_loss=1.0)


def sent_blind(
    sent: Requests, pick: Pick | None = None, *, replicas: int = 4, sight: RouterVisibility = NOTHING_ARRIVES
) -> Outcome:
    options = Options(routing=Routing(pick=pick, sight=sight), keep_requests=True)
    return simulate([pool(replicas=replicas)], [sent], classes=PROMISED, options=options)


def counts(outcome: Outcome) -> list[int]:
    return [replica.finished for replica in outcome.replicas]


def in_parallel(count: int) -> Requests:
    return requests([0.0] * count, [(1024, 200)] * count)


@pytest.mark.parametrize("replicas", [2, 4, 7])
@pytest.mark.parametrize("count", [1, 3, 10, 100])
def test_requests_that_come_before_any_report_are_shared_by_endpoints_that_are_alike(count: int, replicas: int) -> None:
    """Attack: 100 at once went 100/0/0/0 to four idle endpoints: those not sent to yet were taken to be full."""
    shared = counts(sent_blind(in_parallel(count), replicas=replicas, sight=RouterVisibility()))
    assert sum(shared) == count
    assert max(shared) - min(shared) <= 1


@pytest.mark.parametrize("replicas", [2, 4, 7])
def test_of_more_than_can_be_served_in_time_at_least_as_many_are_kept_as_by_levelling(replicas: int) -> None:
    """500 at once are too many for two endpoints: one is given up rather than both."""
    ours, fewest = (
        sent_blind(in_parallel(500), POLICIES[name].pick, replicas=replicas, sight=RouterVisibility())
        for name in ("penstock", "least-request")
    )
    assert ours.classes[0].met >= fewest.classes[0].met
    assert ours.requests == fewest.requests == 500


def test_an_endpoint_nobody_has_heard_of_is_known_to_be_idle() -> None:
    """What follows from its record is there at the first pick, for every picker."""
    seen: list[tuple[float, float]] = []

    def spy(_request: Records, endpoints: Records, _hits: Records, _parameters: Records) -> int:
        seen.extend((float(one["free_tokens"] / one["kv_tokens"]), float(one["tpot_now_s"])) for one in endpoints)
        return 0

    routing = Routing(pick=spy, pickers=2, sight=NOTHING_ARRIVES)
    simulate([pool(replicas=3)], [in_parallel(2)], classes=PROMISED, options=Options(routing=routing))
    assert all(free == 1.0 for free, _ in seen[:3] + seen[3:6])
    assert all(tpot_s > 0 for _, tpot_s in seen)


FEW_REPORTS = [NOTHING_ARRIVES, RouterVisibility(report_loss=0.99), RouterVisibility(report_interval_s=10.0)]


@pytest.mark.parametrize("sight", FEW_REPORTS)
def test_a_router_that_hears_little_keeps_as_many_promises_as_the_fewest_requests(sight: RouterVisibility) -> None:
    """Attack: with every report lost 87.8% kept the promise where the fewest requests kept all."""
    for sent in (alike(3_000, 50.0), conversation_lengths(3_000, 40.0)):
        ours, fewest = (sent_blind(sent, POLICIES[name].pick, sight=sight) for name in ("penstock", "least-request"))
        kept, asked = ours.classes[0].met, fewest.classes[0].met
        # Three standard deviations of a share that large, and a request or two.
        share = asked / fewest.requests
        assert kept >= asked - 3 * np.sqrt(fewest.requests * share * (1 - share)) - 2


@pytest.mark.parametrize("sight", FEW_REPORTS)
def test_requests_that_are_alike_are_shared_alike_without_reports(sight: RouterVisibility) -> None:
    """Attack: one of four endpoints was never sent anything, another half of it all."""
    shared = counts(sent_blind(alike(2_000, 20.0), sight=sight))
    assert max(shared) - min(shared) <= 0.02 * sum(shared)


def alike(count: int, rate_per_s: float) -> Requests:
    arrival_s = np.cumsum(np.random.default_rng(5).exponential(1 / rate_per_s, count))
    return requests(arrival_s.tolist(), [(1024, 200)] * count)
