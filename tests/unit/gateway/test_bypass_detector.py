"""Requests that all pass the pickers by are said once, and so is their end."""

from penstock.gateway.telemetry.bypass_detector import BypassDetector


def test_it_is_said_once_that_nobody_asks_the_pickers_and_once_that_they_are_asked_again() -> None:
    watch = BypassDetector()
    looks = [(10.0, 0.0), (20.0, 0.0), (20.0, 0.0), (30.0, 0.0), (40.0, 0.0), (40.0, 5.0), (40.0, 9.0)]
    said = [watch.compare(passed, decided, 2, 2) for passed, decided in looks]
    assert [bool(text) for text in said] == [False, False, False, True, False, True, False]
    assert "2 of 2 pass their self-check" in str(said[3])


def test_a_picker_that_starts_again_is_not_worth_a_line() -> None:
    watch = BypassDetector()
    assert not any(watch.compare(10.0 * turn, 100.0 * turn, 1, 2) for turn in range(1, 10))
