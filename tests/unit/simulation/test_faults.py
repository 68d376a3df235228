"""What breaks: faults that overlap are their union, and what a death costs is what it costs behind a gateway."""

import pytest

from penstock.simulation.options import Fault, Options, Routing
from penstock.simulation.outcome import Outcome
from penstock.simulation.run import simulate
from simulated import conversation_lengths, pool


def after(*faults: Fault) -> Outcome:
    options = Options(routing=Routing(faults=faults), keep_requests=True)
    return simulate([pool(replicas=4)], [conversation_lengths(2_000, 30.0)], options=options)


def dead(at_s: float, for_s: float = float("inf")) -> Fault:
    return Fault(kind="dies", replica=0, at_s=at_s, for_s=for_s)


def slow(factor: float, at_s: float, for_s: float) -> Fault:
    return Fault(kind="slow", replica=0, at_s=at_s, for_s=for_s, factor=factor)


def silent(at_s: float, for_s: float) -> Fault:
    return Fault(kind="silent", replica=0, at_s=at_s, for_s=for_s)


@pytest.mark.parametrize(
    ("several", "same"),
    [
        ((dead(20.0), dead(30.0, 10.0)), (dead(20.0),)),
        ((dead(30.0, 10.0), dead(20.0, 15.0)), (dead(20.0, 20.0),)),
        ((dead(20.0, 10.0), dead(30.0, 10.0)), (dead(20.0, 20.0),)),
        ((slow(3.0, 10.0, 40.0), slow(3.0, 20.0, 5.0)), (slow(3.0, 10.0, 40.0),)),
        ((slow(3.0, 10.0, 40.0), slow(1.01, 11.0, 1.0)), (slow(3.0, 10.0, 40.0),)),
        (
            (slow(2.0, 10.0, 30.0), slow(4.0, 20.0, 10.0)),
            (slow(2.0, 10.0, 10.0), slow(4.0, 20.0, 10.0), slow(2.0, 30.0, 10.0)),
        ),
        ((silent(10.0, 40.0), silent(20.0, 5.0)), (silent(10.0, 40.0),)),
    ],
)
def test_faults_that_overlap_are_their_union(several: tuple[Fault, ...], same: tuple[Fault, ...]) -> None:
    once, again = after(*several), after(*same)
    assert once.served is not None
    assert again.served is not None
    assert once.served.replica.tobytes() == again.served.replica.tobytes()
    assert once.served.e2e_s.tobytes() == again.served.e2e_s.tobytes()
