import numpy as np
import pytest

from penstock.errors import UsageError
from penstock.workload import Slo, SloClass, parse_duration, parse_slo


def test_an_slo_is_read_as_it_is_typed() -> None:
    assert parse_slo("ttft=1s,tpot=50ms,attain=95%") == Slo(ttft_s=1.0, tpot_s=0.05, attainment_fraction=0.95)
    assert parse_slo(" TTFT = 250us , e2e=2min ") == Slo(ttft_s=250e-6, e2e_s=120.0)
    assert parse_slo("tpot=0.5ms,attain=99.9%").attainment_fraction == pytest.approx(0.999)


def test_attainment_left_out_is_the_stated_default_and_shown() -> None:
    assert str(parse_slo("ttft=1s")) == "ttft=1s,attain=95%"


@pytest.mark.parametrize(
    "text", ["ttft=1s,tpot=50ms,e2e=2min,attain=99.9%", "e2e=90s,attain=50%", "tpot=250us,attain=1%"]
)
def test_what_is_shown_reads_back(text: str) -> None:
    assert str(parse_slo(text)) == text
    assert parse_slo(str(parse_slo(text))) == parse_slo(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a limit of an SLO"),
        ("ttft", "not a time"),
        ("ttft=1", "not a time"),
        ("ttft=-1s", "not a time"),
        ("ttft=nan s", "not a time"),
        ("ttft=1e9s", "not a time"),
        ("ttft=0s", "must be above 0"),
        ("ttft=1s,ttft=2s", "twice"),
        ("latency=1s", "ttft, tpot, e2e or attain"),
        ("ttft=1s,attain=0.95", "not a percentage"),
        ("ttft=1s,attain=0%", "above 0%"),
        ("ttft=1s,attain=101%", "at most 100%"),
        ("attain=95%", "at least one of"),
        ("ttft=1s," * 100, "is too long"),
    ],
)
def test_an_slo_that_cannot_be_meant_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        parse_slo(text)
    assert "\n" not in str(caught.value)


def test_times_have_units() -> None:
    assert [parse_duration(text) for text in ("250us", "50ms", "1.5s", "2min")] == [250e-6, 0.05, 1.5, 120.0]


@pytest.mark.parametrize("share", [0.0, 1.5, float("nan")])
def test_a_class_has_a_share(share: float) -> None:
    with pytest.raises(UsageError, match="share"):
        SloClass(name="chat", share_fraction=share)


def test_a_request_keeps_an_slo_when_it_keeps_every_limit_of_it_and_no_other() -> None:
    slo = Slo(ttft_s=1.0, tpot_s=0.05)
    times = {
        "ttft_s": np.array([1.0, 1.1, 0.5, 0.5, np.inf]),
        "tpot_s": np.array([0.05, 0.01, 0.06, np.nan, np.inf]),
        "e2e_s": np.array([99.0, 2.0, 2.0, 0.5, np.inf]),
    }
    assert slo.met(**times).tolist() == [True, False, False, True, False]
    assert Slo(e2e_s=2.0).met(**times).tolist() == [False, True, True, True, False]
