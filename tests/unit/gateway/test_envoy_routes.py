"""Which route a request takes: how long it may be silent, and which answers are tried elsewhere."""

from typing import Any

import pytest

from desks import fleet
from penstock.gateway.envoy.routes import virtual_host
from penstock.gateway.state.headers import TRY_TIMEOUT


def routes_to_models() -> list[Any]:
    found: Any = virtual_host(fleet(), door="ext_authz")["routes"]
    return [route for route in found if "route" in route]


def silence_s(try_ms: int) -> int | None:
    """How long the first route that takes such a request lets it be silent; None: as long as a stream."""
    for route in routes_to_models():
        ranges = [item["range_match"] for item in route["match"]["headers"] if item["name"] == TRY_TIMEOUT]
        if all(one["start"] <= try_ms < one["end"] for one in ranges):
            idle = route["route"].get("idle_timeout")
            return None if idle is None else int(idle.rstrip("s"))
    raise AssertionError("no route takes it")


@pytest.mark.parametrize("try_s", [225, 900, 2000, 3600])
def test_an_answer_that_is_not_streamed_is_not_cut_before_its_four_tries_are_over(try_s: int) -> None:
    allowed_s = silence_s(1000 * try_s)
    assert allowed_s is not None
    assert allowed_s > 4 * try_s


def test_a_stream_is_given_up_after_fifteen_minutes_without_a_byte() -> None:
    assert silence_s(10_000) is None


def test_only_completions_are_tried_again_after_a_404() -> None:
    for route in routes_to_models():
        retried = 404 in route["route"]["retry_policy"].get("retriable_status_codes", [])
        assert retried == ("safe_regex" in route["match"])
