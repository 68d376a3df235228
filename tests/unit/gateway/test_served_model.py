"""An endpoint with another model is told from one with another name for its model."""

import json

import pytest

from penstock.gateway.picker.failure_detector import has_failed
from penstock.gateway.telemetry.engine_metrics import read_page
from penstock.gateway.telemetry.served_model import ServedModel

NAMES = frozenset({"small", "large"})


def cards(*names: str) -> bytes:
    return json.dumps({"data": [{"id": name} for name in names]}).encode()


@pytest.mark.parametrize(
    ("page_says", "listed", "checks_names", "other"),
    [
        ("small", None, True, False),
        ("large", cards("large"), True, True),
        ("meta/small", cards("meta/small", "small"), True, False),  # --served-model-name with several names
        ("meta/small", cards("meta/small"), True, True),  # vLLM answers 404 to any other name
        ("meta/small", cards("meta/small"), False, False),  # SGLang answers to every name
        ("large", cards("large"), False, True),
        ("large", b'{"error": "Unauthorized"}', True, False),  # not known: a 404 will tell
        ("large", cards(), True, False),
    ],
)
def test_another_model_is_one_without_the_fleets_name(
    *, page_says: str, listed: bytes | None, checks_names: bool, other: bool
) -> None:
    served = ServedModel("10.0.0.1:8000", "small", NAMES, checks_names=checks_names)
    assert served.needs_check(frozenset({page_says}), 100.0) == (listed is not None)
    if listed is not None:
        served.apply_list(listed, 100.0)
        assert not served.needs_check(frozenset({page_says}), 101.0)
    assert served.other == other


def test_another_model_is_logged_once_and_its_end_once(caplog: pytest.LogCaptureFixture) -> None:
    served = ServedModel("10.0.0.1:8000", "small", NAMES, checks_names=True)
    for now_s in (100.0, 106.0):
        assert served.needs_check(frozenset({"large"}), now_s)
        served.apply_list(cards("large"), now_s)
    assert [record.message for record in caplog.records] == [
        "10.0.0.1:8000 serves large, not small; it gets requests only if no other is up"
    ]
    assert not served.needs_check(frozenset({"small"}), 107.0)
    assert not served.other


def test_the_model_name_is_parsed_from_a_page() -> None:
    page = b'vllm:num_requests_running{engine="0",model_name="a/b"} 1\nvllm:num_requests_waiting{engine="0"} 0\n'
    report = read_page(page)
    assert report is not None
    assert report.models == {"a/b"}


@pytest.mark.parametrize(
    ("status", "flags", "tries", "failed"),
    [
        (0, "DC", 1, False),  # the client left
        (0, "-", 1, True),
        (503, "UF,URX", 3, True),
        (404, "-", 1, False),  # a path the engine does not have
        (404, "URX", 4, True),  # nobody knew the model
        (200, "DC", 1, False),
        (200, "UPE", 1, True),  # the endpoint broke the stream off
        (200, "UC", 1, True),
    ],
)
def test_which_responses_count_as_failed(*, status: int, flags: str, tries: int, failed: bool) -> None:
    assert has_failed(status, flags, tries) == failed
