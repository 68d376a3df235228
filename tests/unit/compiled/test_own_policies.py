"""A user's own policy runs as a Python callback, or compiled by numba if it is marked."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock.compiled.marks import compiled, interpreted
from penstock.errors import DeploymentError
from penstock.routing import policy_function
from penstock.routing.policy_function import Pick
from penstock.routing.records import Records
from penstock.simulation.outcome import Served
from penstock.simulation.run import simulate
from penstock.simulation.run_options import Options, Routing
from simulated import conversation_lengths, pool


@compiled
def fewest_in_flight(_request: Records, endpoints: Records, _hits: Records, _parameters: Records) -> int:
    """Take the endpoint with the fewest requests in flight."""
    best = 0
    for index in range(1, len(endpoints)):
        if endpoints[index]["in_flight"] < endpoints[best]["in_flight"]:
            best = index
    return best


def served(pick: Pick) -> Served:
    sent = conversation_lengths(400, 30.0)
    outcome = simulate([pool(replicas=3)], [sent], options=Options(routing=Routing(pick=pick), keep_requests=True))
    assert outcome.served is not None
    return outcome.served


def test_a_marked_policy_decides_as_the_same_one_in_python() -> None:
    as_machine_code, as_python = served(fewest_in_flight), served(_plain(interpreted(fewest_in_flight)))
    assert len(set(as_machine_code.replica.tolist())) == 3
    assert as_machine_code.replica.tolist() == as_python.replica.tolist()
    assert as_machine_code.e2e_s.tobytes() == as_python.e2e_s.tobytes()


def _plain(policy: Callable[..., Any]) -> Pick:
    def plain(request: Records, endpoints: Records, hits: Records, parameters: Records) -> int:
        return int(policy(request, endpoints, hits, parameters))

    return plain


def test_without_numba_a_marked_policy_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_function, "find_spec", lambda _name: None)

    @compiled
    def first(_request: Records, _endpoints: Records, _hits: Records, _parameters: Records) -> int:
        return 0

    with pytest.raises(DeploymentError, match=r"install penstock\[compile\], or remove the mark"):
        served(first)
