"""Public answers against figures from elsewhere: tables of formats, logs of engines, data sheets, sums by hand."""

import tomllib
from math import expm1, fsum, log
from pathlib import Path
from typing import Any, Final

import pytest

from contract.conftest import Ask
from contract.doors import REPOSITORY
from contract.inputs import fp8_tensor

LOGS: Final = tomllib.loads((REPOSITORY / "tests/data/kv_cache_logs.toml").read_text())["log"]
"""Start-up logs of real engines. Asked here: those of catalog accelerators with a checkpoint's own weights."""
ASKED_LOGS: Final = {
    f"{log['model']} {log['accelerator']} {log['tp']} {log['engine']} {log['version']} {log['kv_tokens']}": log
    for log in LOGS
    if not {"device_gib", "weights", "dp", "ep"} & set(log) and ("note" not in log or log["model"] == "gpt-oss-120b")
}
DATA_SHEETS: Final = {
    # Memory in bytes, bandwidth in bytes per second, dense bf16 and fp8 in FLOPS: the makers' data sheets.
    "mi300x": (192 * 2**30, 5.3e12, 1307.4e12, 2614.9e12),
    "mi325x": (256 * 2**30, 6.0e12, 1307.4e12, 2614.9e12),
    "mi355x": (288 * 2**30, 8.0e12, 2516.6e12, 5033.2e12),
    "h100": (80 * 2**30, 3.35e12, 989.4e12, 1978.9e12),
    "h200": (141 * 2**30, 4.8e12, 989.4e12, 1978.9e12),
    "b200": (180 * 2**30, 7.7e12, 2250e12, 4500e12),
}
PARAMETERS: Final = {
    # Counted in the published checkpoints.
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "qwen3-8b": 8_190_735_360,
    "mistral-7b": 7_248_023_552,
}


def e4m3(code: int, *, fnuz: bool = False) -> float:
    """Decode one byte of the OCP table; in FNUZ the bias is 8 instead of 7."""
    exponent, mantissa, bias = code >> 3 & 15, code & 7, 8 if fnuz else 7
    size = mantissa / 8 * 2.0 ** (1 - bias) if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - bias)
    return -size if code & 128 else size


@pytest.mark.parametrize("code", [0x01, 0x07, 0x08, 0x38, 0x41, 0x77, 0x7E])
def test_fp8_codes_have_their_table_values(code: int, ask: Ask, folder: Path) -> None:
    (folder / "one.safetensors").write_bytes(fp8_tensor(bytes([code, code | 128]) * 8192, 1.0))
    (group,) = ask("fp8 scan one.safetensors --json").json["groups"]
    assert group["largest_value"] == e4m3(code)
    assert group["other_largest_value"] == e4m3(code, fnuz=True)


def test_fp8_extremes_are_those_of_the_standard() -> None:
    assert (e4m3(0x7E), e4m3(0x01), e4m3(0x38), e4m3(0x7F, fnuz=True)) == (448.0, 2.0**-9, 1.0, 240.0)


@pytest.mark.parametrize(
    ("on", "treatment"), [("mi300x", "converted exactly"), ("mi355x", "as stored"), ("h100", "as stored")]
)
def test_scan_of_preflight_knows_the_dialect(on: str, treatment: str, ask: Ask) -> None:
    """CDNA3 computes FNUZ, whose codes are worth half: engines convert there, and nowhere else."""
    answer = ask(f"preflight ./sound --on {on} --scan --json")
    (deployment,) = answer.json["deployments"]
    assert [group["treatment"] for group in deployment["predictions"]["fp8"]] == [treatment]


def fit_words(logged: dict[str, Any]) -> str:
    options = {
        "memory_fraction": "--memory-fraction",
        "batched_tokens": "--batched-tokens",
        "sequences": "--sequences",
        "kv": "--kv",
        "context": "--context",
    }
    given = " ".join(f"{option} {logged[key]}" for key, option in options.items() if key in logged)
    where = f"--on {logged['accelerator']}:{logged['tp']} --engine {logged['engine']}"
    return f"fit {logged['model']} {where} --engine-version {logged['version']} {given} --json"


@pytest.mark.parametrize("name", ASKED_LOGS)
def test_kv_cache_is_what_the_engine_logged(name: str, ask: Ask) -> None:
    """Within 8%, or between the P10 and P90 that the answer states."""
    logged = ASKED_LOGS[name]
    capacity = ask(fit_words(logged)).json["deployments"][0]["capacity"]
    tokens = capacity["tokens"] if capacity["logged_tokens"] is None else capacity["logged_tokens"]
    low, high = (capacity[f"{end}_tokens"] * tokens / capacity["tokens"] for end in ("low", "high"))
    assert min(low, 0.92 * tokens) <= logged["kv_tokens"] <= max(high, 1.08 * tokens)
    assert 0.85 < tokens / logged["kv_tokens"] < 1.15


@pytest.mark.parametrize("name", DATA_SHEETS)
def test_accelerators_are_as_in_their_data_sheets(name: str, ask: Ask) -> None:
    found = ask(f"catalog show {name} --json").json["accelerator"]
    hbm_bytes, bytes_per_s, bf16, fp8 = DATA_SHEETS[name]
    assert found["memory"]["hbm_bytes"] == pytest.approx(hbm_bytes, rel=0.02)
    assert found["memory"]["hbm_bytes_per_s"] == bytes_per_s
    assert found["dense_flops_per_s"]["bf16"] == pytest.approx(bf16, rel=0.01)
    assert found["dense_flops_per_s"]["fp8"] == pytest.approx(fp8, rel=0.01)


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_those_of_the_checkpoint(name: str, ask: Ask) -> None:
    assert ask(f"inspect {name} --json").json["total_params"] == PARAMETERS[name]


def test_cache_bytes_per_token_by_hand(ask: Ask) -> None:
    """Keys and values of 8 heads of 128 in two bytes: 32 layers of the 8B, 80 of the 70B."""
    for name, layers in (("llama-3.1-8b", 32), ("llama-3.1-70b", 80)):
        (placed,) = ask(f"fit {name} --on mi300x --json").json["deployments"]
        assert ask(f"fit {name} --on mi300x --json").json["model"]["cache_bytes_per_token"] == 2 * layers * 8 * 128 * 2
        assert placed["budget"]["kv_bytes"] // (2 * layers * 8 * 128 * 2) == pytest.approx(
            placed["capacity"]["tokens"], abs=16
        )


@pytest.mark.parametrize(
    ("on", "devices", "bytes_per_s"), [("h100", 1, 3.35e12), ("h100:4", 4, 3.35e12), ("h200:2", 2, 4.8e12)]
)
def test_reading_weights_takes_bytes_over_bandwidth(on: str, devices: int, bytes_per_s: float, ask: Ask) -> None:
    """All but the embedding table, of which a step reads a few rows."""
    embedding, norms = 128_256 * 4096 * 2, 532_480
    parts = ask(f"predict llama-3.1-8b --on {on} --json").json["deployments"][0]["step_parts_s"]
    read = (16_060_522_496 - embedding - norms) / devices + norms
    assert parts["weights"] == pytest.approx(read / bytes_per_s, rel=1e-4)


def present_value(years: float, rate: float) -> float:
    return float((1 + rate) ** -years)


@pytest.mark.parametrize(
    ("plan", "rate", "resale"), [("bought.yaml", 0.08, 0.6), ("bought-undiscounted.yaml", 0.0, 1.0)]
)
def test_bill_of_bought_nodes_by_hand(plan: str, rate: float, resale: float, ask: Ask) -> None:
    """Discount together with resale: what is sold in three years is worth less today, what is paid until then too."""
    cost = ask(f"plan {plan} --json").json["answer"]["winner"]["cost"]
    years, depreciation_years, devices = 3, 4, 8
    # A payment that flows all the time, and is discounted all the time.
    paid_years = years if rate == 0 else -expm1(-log(1 + rate) * years) / log(1 + rate)
    owned = 1 - resale * (1 - years / depreciation_years) * present_value(years, rate)
    engineer_years_usd = 300_000 * paid_years
    by_hand = {
        "silicon": devices * 15_000 * owned,
        "host": 70_000 * owned,
        "network": devices * 2_000 * owned,
        "hosting": 10 * 200 * 12 * paid_years,
        "support": devices * 100 * paid_years,
        "failures": devices * 15_000 * 0.05 * paid_years,
    }
    found = {line["item"]: line for line in cost["lines"] if line["item"] in by_hand}
    assert {item: line["usd"] for item, line in found.items()} == pytest.approx(by_hand, rel=1e-9)
    (power,) = (line for line in cost["lines"] if line["item"] == "power")
    (cooling,) = (line for line in cost["lines"] if line["item"] == "cooling")
    assert 4 < power["inputs"]["average_kw"] < 10  # idle at 40% of 10 kW, and below the maximum
    assert power["usd"] == pytest.approx(power["inputs"]["average_kw"] * 8760 * 0.1 * paid_years, rel=1e-9)
    assert cooling["usd"] == pytest.approx(0.2 * power["usd"], rel=1e-9)
    people = fsum(line["usd"] for line in cost["lines"] if line["item"] == "software")
    assert people == pytest.approx((2 + 8 / 1000) * engineer_years_usd, rel=1e-9)


def test_cash_of_bought_nodes_by_hand(ask: Ask) -> None:
    """Cash is not discounted: two nodes (one spare) are ordered on the first day, and sold as a book value says."""
    cash = ask("plan bought.yaml --json").json["answer"]["winner"]["cash"]
    node_usd = 8 * (15_000 + 2_000) + 70_000
    assert cash["capex_usd"] == 2 * node_usd
    assert cash["bought_book_usd"] == pytest.approx(2 * node_usd * (1 - 3 / 4), rel=1e-9)
    assert cash["bought_resale_usd"] == pytest.approx(0.6 * cash["bought_book_usd"], rel=1e-9)


def test_bill_of_one_tenant_by_hand(ask: Ask) -> None:
    """Six requests of 4 s, 3 s apart, are in flight from 101.5 s to 120.5 s: 19 s of an hour at two dollars."""
    found = ask("bill ended.jsonl --fleet addressed.yaml --from 2026-11-01 --to 2026-11-01T01:00 --json").json
    (pool,) = (line for line in found["pools"] if line["pool"] == "mi300x")
    (batch,) = (line for line in found["tenants"] if line["tenant"] == "batch")
    assert pool["busy_s"] == pytest.approx(19.0, rel=1e-9)
    assert batch["usd"] == pytest.approx(19.0 * 2.0 / 3600, rel=1e-9)
    assert (batch["requests"], batch["missed"]) == (6, 2)


def test_load_results_by_hand(ask: Ask) -> None:
    """128 tokens: the first after 50 ms, the others every 8 ms."""
    (run,) = ask("results vllm-8.json --json").json["runs"]
    latency_s = 0.05 + 0.008 * 127
    assert run["request_latency"]["mean_s"] == pytest.approx(latency_s, rel=1e-12)
    assert run["tpot"]["p50_s"] == pytest.approx(0.008, rel=1e-12)
    assert run["output_tokens_per_s"] == pytest.approx(8 * 128 / latency_s, rel=1e-12)
