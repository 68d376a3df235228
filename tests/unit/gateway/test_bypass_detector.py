"""Bypassed pickers are logged once, and once more when they decide again."""

from penstock.gateway.telemetry.bypass_detector import BypassDetector


def test_a_bypass_is_reported_once_and_its_end_once() -> None:
    watch = BypassDetector()
    looks = [(10.0, 0.0), (20.0, 0.0), (20.0, 0.0), (30.0, 0.0), (40.0, 0.0), (40.0, 5.0), (40.0, 9.0)]
    said = [watch.compare(passed, decided, 2, 2) for passed, decided in looks]
    assert [bool(text) for text in said] == [False, False, False, True, False, True, False]
    assert "2 of 2 pass their self-check" in str(said[3])


def test_a_restarting_picker_is_not_reported() -> None:
    watch = BypassDetector()
    assert not any(watch.compare(10.0 * turn, 100.0 * turn, 1, 2) for turn in range(1, 10))
