"""`predict`, `tax` and `accuracy` as a user runs them."""

import json
import re
import resource

import pytest

from conftest import Run

pytestmark = pytest.mark.wheel


def test_predict_compares_accelerators_with_intervals_and_grounds(penstock: Run) -> None:
    result = penstock(
        "predict",
        "deepseek-r1",
        "--on",
        "mi355x:8,b200:8",
        "--in",
        "8192",
        "--out",
        "1024",
        "--concurrency",
        "64",
        "--json",
    )
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    for placed in document["deployments"]:
        assert placed["tier"] == "measured"
        assert placed["rows_of_this_setup"] > 10
        assert placed["tpot_s"]["low"] < placed["tpot_s"]["value"] < placed["tpot_s"]["high"]
        assert placed["roofline_s"] < placed["tpot_s"]["value"]
        assert placed["nearest"][0]["url"].startswith("https://")
        assert 0 < placed["software_tax_fraction"] < 1
        watts, joules = placed["energy"]["device_watts"], placed["energy"]["joules_per_output_token"]
        assert watts["low"] < watts["value"] < watts["high"] <= 1400
        assert joules["low"] < joules["value"] < joules["high"]
        assert placed["energy"]["tier"] in {"calibrated", "transferred"}
        assert "InferenceX" in placed["energy"]["source"]


def test_multi_token_prediction_says_what_it_stands_on(penstock: Run) -> None:
    common = ("predict", "deepseek-r1", "--on", "mi355x:8", "--concurrency", "16", "--json")
    plain, drafting = (
        json.loads(penstock(*common, *more).stdout)["deployments"][0] for more in ((), ("--engine", "sglang", "--mtp"))
    )
    assert plain["speculation"] is None
    assert drafting["speculation"]["drafted_tokens"] == 3
    assert re.search(r"acceptance from \d+ pairs", drafting["speculation"]["grounds"])
    assert drafting["tpot_s"]["low"] < drafting["tpot_s"]["value"] < drafting["tpot_s"]["high"]
    assert drafting["tpot_s"]["value"] < plain["tpot_s"]["value"]


def test_drafting_without_draft_layers_is_one_line(penstock: Run) -> None:
    result = penstock("predict", "llama-3.1-8b", "--on", "h100", "--mtp")
    assert result.returncode == 2
    assert "no multi-token-prediction layers" in result.stderr
    assert result.stderr.count("\n") == 1


def test_the_example_of_the_help_takes_under_a_second(penstock: Run) -> None:
    arguments = ("predict", "llama-3.1-70b", "--on", "mi300x:1,h100:4", "--in", "4k", "--out", "512")
    penstock(*arguments)
    before_s = _children_s()
    result = penstock(*arguments)
    assert result.returncode == 0, result.stderr
    assert _children_s() - before_s < 2, "the goal is a second of processor time; a shared core is slower"


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_an_accelerator_nobody_measured_is_transferred_and_says_from_where(penstock: Run) -> None:
    document = json.loads(penstock("predict", "llama-3.1-8b", "--on", "mi350x", "--json").stdout)
    assert document["deployments"][0]["tier"] == "transferred"
    assert document["deployments"][0]["borrowed_from"] == ["amd"]


def test_the_roofline_is_a_bound(penstock: Run) -> None:
    common = ("predict", "llama-3.1-70b", "--on", "mi300x", "--concurrency", "1", "--in", "1", "--json")
    bound = json.loads(penstock(*common, "--roofline").stdout)["deployments"][0]
    estimate = json.loads(penstock(*common).stdout)["deployments"][0]
    assert bound["tier"] == "roofline"
    # 5.3 TB/s over 140 GB of weights.
    assert bound["output_tokens_per_s"]["value"] == pytest.approx(37.9, rel=0.02)
    assert estimate["output_tokens_per_s"]["value"] < bound["output_tokens_per_s"]["value"]


def test_an_engine_that_was_not_measured_is_named(penstock: Run) -> None:
    result = penstock("predict", "llama-3.1-8b", "--on", "mi325x", "--engine", "trtllm")
    assert result.returncode == 2
    assert "choose one of: sglang, vllm" in result.stderr


def test_predict_exits_1_when_it_does_not_fit(penstock: Run) -> None:
    assert penstock("predict", "llama-3.1-70b", "--on", "h100").returncode == 1


def test_tax_shows_how_a_stack_moved(penstock: Run) -> None:
    told = json.loads(penstock("tax", "--on", "mi355x", "--engine", "sglang", "--json").stdout)
    points = told["points"]
    assert [point["month"] for point in points] == sorted(point["month"] for point in points)
    assert points[-1]["relative_speed"] > 1.3
    assert all(0 < point["median_fraction"] < 1 for point in points)


def test_accuracy_refuses_an_unknown_fold(penstock: Run) -> None:
    assert penstock("accuracy", "--by", "colour").returncode == 2


def test_what_does_not_fit_gets_no_numbers_and_a_wrong_count_is_usage(penstock: Run) -> None:
    shown = penstock("predict", "llama-3.1-70b", "--on", "mi300x,h100")
    rows = {line[:16].rstrip(): line.rstrip() for line in shown.stdout.splitlines()}
    assert rows["output tok/s (P1"].endswith("does not fit")
    assert all(rows[head].endswith(" -") for head in ("tok/s per device", "TPOT ms (P10-P90", "TTFT ms (P10-P90"))
    assert "`penstock fit` lists what would fit" in shown.stdout
    assert penstock("predict", "llama-3.1-8b", "--on", "h100:2", "--dp", "4").returncode == 2


@pytest.mark.parametrize("precision", ["mxfp4", "fp8", "fp16"])
def test_a_format_asked_for_is_the_same_bytes_whether_it_must_fit_or_be_fast(penstock: Run, precision: str) -> None:
    asked = ("qwen3-235b-a22b", "--on", "h200:8", "--precision", precision, "--json")
    fitted, predicted = (json.loads(penstock(command, *asked).stdout)["model"] for command in ("fit", "predict"))
    assert fitted == predicted
