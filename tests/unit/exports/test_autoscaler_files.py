"""Profiles for other autoscalers follow their formats, and their formulas give our simulator's times."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from penstock.api.arguments.fleet_argument import fleet_choice
from penstock.api.export import constants_of, export
from penstock.api.simulate import simulate
from penstock.exports.pool_constants import PoolConstants

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "fleets" / "chat-h100-mi300x.yaml"
COST = re.compile(r"^\d+(\.\d+)?$")
"""Pattern of `variantCost` in the custom resource of llm-d."""


@pytest.fixture(scope="module")
def constants() -> list[PoolConstants]:
    return constants_of(fleet_choice(EXAMPLE))


def itl_ms(one: PoolConstants, batch: int, context: int) -> float:
    return 1e3 * one.replica.cost.seconds(contexts=(context,) * batch)


def test_llmd_gets_costs_and_a_line_through_our_step_times(constants: list[PoolConstants]) -> None:
    variants = list(yaml.safe_load_all(export(EXAMPLE, "llm-d")))
    for one, made in zip(constants, variants, strict=True):
        assert (made["apiVersion"], made["kind"]) == ("llmd.ai/v1alpha1", "VariantAutoscaling")
        spec = made["spec"]
        assert {"kind", "name"} <= spec["scaleTargetRef"].keys()
        assert COST.match(spec["variantCost"])
        assert float(spec["variantCost"]) == pytest.approx(100 * (one.pool.usd_per_hour or 0))
        assert spec.keys() == {"scaleTargetRef", "modelID", "variantCost"}
        notes = made["metadata"]["annotations"]
        assert all(isinstance(value, str) for value in notes.values())
        for batch in (8, 64):
            said = float(notes["penstock/alpha-ms"]) + float(notes["penstock/beta-ms"]) * batch
            assert said == pytest.approx(itl_ms(one, batch, 1124), rel=0.15)


def test_the_mean_duration_at_a_rate_is_near_the_simulated_one() -> None:
    """Near the highest rate, durations change steeply with the rate."""
    profile = json.loads(export(EXAMPLE, "aibrix").splitlines()[0])
    outputs, inputs = profile["indexes"]
    row, column = outputs.index(128), inputs.index(512)
    fleet = fleet_choice(EXAMPLE)
    seen = simulate(
        fleet.pools[0].model,
        fleet.pools[0].accelerator,
        engine=fleet.pools[0].engine.name,
        rate=profile["tputs"][row][column],
        input_tokens=512,
        output_tokens=128,
        slo="ttft=1s,tpot=50ms",
        requests=2000,
    )
    (made,) = seen.rows()
    assert isinstance(made["e2e_s_p50"], float)
    assert made["e2e_s_p50"] / 2 < profile["e2e"][row][column] < 2 * made["e2e_s_p50"]


def test_dynamo_gets_a_profile_that_its_planner_interpolates(constants: list[PoolConstants]) -> None:
    """The planner needs four prompt lengths for cubic splines, and indexes decode steps by the use of the cache."""
    maps = list(yaml.safe_load_all(export(EXAMPLE, "dynamo")))
    for one, made in zip(constants, maps, strict=True):
        assert made["kind"] == "ConfigMap"
        prefill = {key: np.array(value) for key, value in json.loads(made["data"]["prefill_raw_data.json"]).items()}
        decode = json.loads(made["data"]["decode_raw_data.json"])
        assert len(prefill["prefill_isl"]) >= 4
        assert (np.diff(prefill["prefill_isl"]) > 0).all()
        assert (np.diff(prefill["prefill_ttft"]) > 0).all()
        seconds = prefill["prefill_ttft"] / 1e3
        assert prefill["prefill_thpt_per_gpu"] == pytest.approx(prefill["prefill_isl"] / seconds / one.pool.devices)
        columns = [decode[key] for key in ("x_kv_usage", "y_context_length", "z_itl", "z_thpt_per_gpu")]
        assert len({len(column) for column in columns}) == 1
        for usage, context, itl, rate in zip(*columns, strict=True):
            batch = round(usage * decode["max_kv_tokens"] / context)
            assert 1 <= batch <= one.replica.max_sequences
            assert itl == pytest.approx(itl_ms(one, batch, context))
            assert rate == pytest.approx(batch / itl * 1e3 / one.pool.devices)


def test_aibrix_gets_rates_by_length_in_its_own_order(constants: list[PoolConstants]) -> None:
    """Its optimizer refuses profiles whose lengths differ between accelerators."""
    profiles = [json.loads(line) for line in export(EXAMPLE, "aibrix").splitlines()]
    assert len({json.dumps(one["indexes"]) for one in profiles}) == 1
    for one, made in zip(constants, profiles, strict=True):
        outputs, inputs = made["indexes"]
        rates = np.array(made["tputs"])
        assert rates.shape == np.array(made["e2e"]).shape == (len(outputs), len(inputs))
        assert (rates[1:] <= 1.02 * rates[:-1]).all()
        assert (rates[:, 1:] <= 1.02 * rates[:, :-1]).all()
        nearest = rates[outputs.index(256), inputs.index(1024)], rates[outputs.index(128), inputs.index(1024)]
        assert nearest[0] <= one.requests_per_s <= nearest[1]
        assert made["slos"] == {"percentile": 0, "ttft": 1.0, "tpot": 0.05}
        assert set(made) == {"gpu", "cost", "tputs", "indexes", "created", "e2e", "ttft", "slos"}
        whole_s, first_s = np.array(made["e2e"]), np.array(made["ttft"])
        kept = rates > 0
        most_s = 1.0 + 0.05 * np.array(outputs)[:, None] + 0 * whole_s
        assert (whole_s[kept] <= most_s[kept]).all()
        assert (first_s[kept] <= 1.0).all()
        assert (rates * whole_s <= 1.05 * one.replica.max_sequences).all()
