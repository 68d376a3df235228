"""Which route a request takes: how long it may be silent, and which answers are tried elsewhere."""

from typing import Any

from desks import fleet
from penstock.gateway.envoy.routes import virtual_host
from penstock.gateway.state.headers import WHOLE


def routes_to_models() -> list[Any]:
    found: Any = virtual_host(fleet(), door="ext_authz")["routes"]
    return [route for route in found if "route" in route]


def idle_s(*, whole: bool) -> int | None:
    """How long the first route that takes such a request lets it be silent; None: as long as a stream."""
    for route in routes_to_models():
        wanted = [item["name"] for item in route["match"]["headers"]]
        if whole or WHOLE not in wanted:
            idle = route["route"].get("idle_timeout")
            return None if idle is None else int(idle.rstrip("s"))
    raise AssertionError("no route takes it")


def test_an_answer_that_is_not_streamed_is_not_cut_before_its_last_token() -> None:
    allowed_s = idle_s(whole=True)
    assert allowed_s is not None
    assert allowed_s > 3600


def test_a_stream_is_given_up_after_fifteen_minutes_without_a_byte() -> None:
    assert idle_s(whole=False) is None


def test_a_silent_try_is_not_aborted_and_a_500_is_tried_elsewhere() -> None:
    for route in routes_to_models():
        assert route["route"]["hedge_policy"] == {"hedge_on_per_try_timeout": True}
        assert 500 in route["route"]["retry_policy"]["retriable_status_codes"]


def test_only_completions_are_tried_again_after_a_404() -> None:
    for route in routes_to_models():
        retried = 404 in route["route"]["retry_policy"].get("retriable_status_codes", [])
        assert retried == ("safe_regex" in route["match"])
