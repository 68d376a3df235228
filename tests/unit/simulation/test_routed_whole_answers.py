"""What is promised for whole answers steers in the simulator: long answers end in time where tokens are quick."""

from dataclasses import replace

from penstock.routing.baselines.all_policies import POLICIES
from penstock.simulation.run import simulate
from penstock.simulation.run_options import Options, Routing
from penstock.workload import SloClass, parse_slo
from simulated import COST, conversation_lengths, pool


def test_the_policy_is_steered_by_a_limit_for_the_whole_answer() -> None:
    """Attack: a promise of e2e alone was judged and did not steer, and the policy lost to round robin by far."""
    slow = replace(COST, step_s=0.05, prefill_token_s=1e-5)
    pools = [pool(cost=slow, name="slow tokens", replicas=2), pool(name="quick tokens", replicas=2)]
    asked = [SloClass(name="all", share_fraction=1.0, slo=parse_slo("e2e=8s"))]
    met = {}
    for name in ("penstock", "round-robin", "least-request"):
        options = Options(routing=Routing(pick=POLICIES[name].pick))
        (found,) = simulate(pools, [conversation_lengths(3_000, 20.0)], classes=asked, options=options).classes
        met[name] = found.met_fraction or 0.0
    assert met["penstock"] > 0.01 + max(met["round-robin"], met["least-request"])
