"""Prompts and answers apart: what is deployed, how KV travels, and laws of the prediction."""

from dataclasses import replace
from statistics import median
from typing import Any

import pytest

import penstock
from penstock.api.arguments.choices import ranks_choice
from penstock.api.predict import PredictDisaggregatedAnswer
from penstock.catalog import load_accelerator, load_measurements
from penstock.catalog.measurement import Measurement
from penstock.errors import DeploymentError, UsageError
from penstock.fleet import Parallelism
from penstock.fleet.disaggregated_replica import Disaggregated
from penstock.model.model_spec import model_as_measured
from penstock.performance.disaggregated.disaggregated_prediction import (
    DisaggregatedEvidence,
    DisaggregatedPrediction,
    DisaggregatedSplit,
    deploy_disaggregated,
    disaggregated_engines,
    kv_bytes_per_token,
    predict_disaggregated,
    predict_disaggregated_on,
    transfer_token_s,
)
from penstock.performance.disaggregated.phase_factors import phase_factors_from
from penstock.performance.disaggregated.steady_state import PoolsDemand
from penstock.performance.shipped.shipped_disaggregated import shipped_phase_factors
from penstock.performance.shipped.shipped_runs import model_of, shipped_efficiencies

RANKS = Parallelism(tp=1, dp=4, expert_parallel=True)
WIDE = Parallelism(tp=8, expert_parallel=True)


def deployed(accelerator: str = "gb200", *, prefills: int = 1, decodes: int = 4) -> Disaggregated:
    split = DisaggregatedSplit(prefill=RANKS, prefill_replicas=prefills, decode=WIDE, decode_replicas=decodes)
    model = model_as_measured(model_of("deepseek-r1"), "nvfp4")
    return deploy_disaggregated(model, load_accelerator(accelerator), split, "trtllm", None)


def predicted(
    users: float, output_tokens: float = 1024, *, prefills: int = 1, decodes: int = 4
) -> DisaggregatedPrediction:
    demand = PoolsDemand(users=users, input_tokens=1024, output_tokens=output_tokens)
    pools = deployed(prefills=prefills, decodes=decodes)
    return predict_disaggregated(pools, "trtllm", demand, shipped_efficiencies(), shipped_phase_factors())


def test_a_slower_link_delays_a_first_token_by_its_own_seconds() -> None:
    """What a client sees of steps is longer than steps; bytes on a link are as late as the link makes them."""
    demand = PoolsDemand(requests_per_s=0.01, input_tokens=4096, output_tokens=256)
    slow, fast = (
        predict_disaggregated(told, "trtllm", demand, shipped_efficiencies(), shipped_phase_factors())
        for told in (replace(deployed(), kv_bytes_per_s=rate) for rate in (1e9, 1e15))
    )
    assert fast.decode.first_ratio != 1.0
    moved_s = 4096 * transfer_token_s(slow.deployed)
    assert slow.ttft_s.value - fast.ttft_s.value == pytest.approx(moved_s, rel=1e-3)


def test_devices_are_those_of_both_pools() -> None:
    assert deployed().devices == 1 * 4 + 4 * 8


def test_inside_a_rack_every_device_of_a_prefill_replica_sends_over_its_own_link() -> None:
    assert deployed().sending_bytes_per_s == 4 * 900e9


@pytest.mark.parametrize(("accelerator", "decodes"), [("gb200", 9), ("b200_sxm", 4)])
def test_beyond_a_rack_or_a_machine_somebody_must_say_how_fast(accelerator: str, decodes: int) -> None:
    with pytest.raises(DeploymentError, match="--kv-gbps"):
        _ = deployed(accelerator, decodes=decodes).sending_bytes_per_s
    told = replace(deployed(accelerator, decodes=decodes), kv_bytes_per_s=50e9)
    assert told.sending_bytes_per_s == 50e9


def test_a_pool_without_replicas_is_refused() -> None:
    with pytest.raises(DeploymentError, match="at least one prefill and one decode replica"):
        deployed(prefills=0)


def test_a_rank_sends_its_own_cache_and_ranks_share_the_replicas_links() -> None:
    placed = deployed()
    bytes_per_token = kv_bytes_per_token(placed.prefill)
    # 61 layers of latent attention, 512 + 64 entries of two bytes, on one device.
    assert bytes_per_token == pytest.approx(61 * 576 * 2, rel=0.01)
    assert transfer_token_s(placed) == pytest.approx(bytes_per_token / (4 * 900e9))


def test_more_replicas_of_a_kind_never_serve_less() -> None:
    for users in (16, 512, 8192):
        base = predicted(users).output_tokens_per_s.value
        assert predicted(users, prefills=2).output_tokens_per_s.value >= base * (1 - 1e-6)
        assert predicted(users, decodes=8).output_tokens_per_s.value >= base * (1 - 1e-6)


def test_too_few_prefill_replicas_are_named() -> None:
    assert predicted(8192, output_tokens=64).steady.bound_by == "prefill"
    assert predicted(16).steady.bound_by == "users"


def test_every_figure_has_an_interval_around_it() -> None:
    answer = predicted(128)
    for figure in (answer.tpot_s, answer.ttft_s, answer.output_tokens_per_s):
        assert figure.low < figure.value < figure.high
    rate = answer.output_tokens_per_s.value
    assert answer.output_tokens_per_s_per_device == pytest.approx(rate / answer.deployed.devices)


def test_a_setup_nobody_ran_apart_is_transferred_with_the_wider_interval() -> None:
    split = DisaggregatedSplit(prefill=Parallelism(), prefill_replicas=1, decode=Parallelism(), decode_replicas=3)
    answer = predict_disaggregated_on(
        model_of("llama-3.1-8b"),
        load_accelerator("mi300x"),
        split,
        cache_dtype=None,
        measured_engine="best",
        demand=PoolsDemand(users=16, input_tokens=1024, output_tokens=256),
        efficiencies=shipped_efficiencies(),
        evidence=DisaggregatedEvidence(factors=shipped_phase_factors()),
    )
    assert answer.tier == "transferred"
    width = answer.tpot_s.high / answer.tpot_s.low
    assert width > predicted(128).tpot_s.high / predicted(128).tpot_s.low


def test_engines_that_ran_apart_are_tried_and_others_refused() -> None:
    accelerator = load_accelerator("gb300")
    assert list(disaggregated_engines(accelerator, "best", shipped_efficiencies(), shipped_phase_factors())) == [
        "sglang",
        "trtllm",
        "vllm",
    ]
    with pytest.raises(DeploymentError, match="choose one of: sglang, trtllm, vllm"):
        disaggregated_engines(accelerator, "atom", shipped_efficiencies(), shipped_phase_factors())


def test_what_is_shipped_reads_back() -> None:
    apart = shipped_phase_factors()
    assert phase_factors_from(apart.document()) == apart


@pytest.mark.parametrize("text", ["ranks4", "tp", "tp0x", "8"])
def test_a_split_is_typed_in_its_own_words(text: str) -> None:
    assert ranks_choice("dp4,ep") == RANKS
    assert ranks_choice("tp8 ep") == WIDE
    with pytest.raises(UsageError, match="is not a valid split"):
        ranks_choice(text)


POOLS: dict[str, Any] = {"precision": "nvfp4", "engine": "trtllm", "ep": True, "prefill": 1, "prefill_split": "dp4,ep"}


def published(*, mtp: bool) -> list[Measurement]:
    """Rows of DeepSeek-R1 on GB200 whose pools the command line can describe, newest of each load last."""
    rows = [
        row
        for row in load_measurements("gb200")
        if row.model == "deepseek-r1" and row.engine == "trtllm" and row.prefill and bool(row.drafted) == mtp
    ]
    rows = [row for row in rows if not row.twin and row.weights == "nvfp4" and row.tpot_s and row.output_tokens_per_s]
    return sorted(rows, key=lambda row: (row.dated == "day", row.date))


@pytest.mark.parametrize("mtp", [False, True])
def test_pools_that_were_measured_are_the_answer(mtp: bool) -> None:  # noqa: FBT001 - the only parameter
    off = []
    for row in published(mtp=mtp)[-80::8]:
        side = row.prefill
        assert side is not None
        answer = penstock.predict(
            "deepseek-r1",
            f"gb200:{row.tp * row.dp}",
            precision="nvfp4",
            engine="trtllm",
            dp=row.dp,
            ep=row.ep,
            replicas=row.decode_workers,
            prefill=side.workers,
            prefill_split=f"tp{side.tp},dp{side.dp}" + (",ep" if side.ep else ""),
            input_tokens=round(row.input_tokens),
            output_tokens=round(row.output_tokens),
            concurrency=round(row.concurrency or 1),
            mtp=mtp,
        )
        assert isinstance(answer, PredictDisaggregatedAnswer)
        (prediction,) = answer.predictions
        assert (prediction.speculation is not None) == mtp
        if prediction.tier == "measured":
            off.append(abs(prediction.tpot_s.value / (row.tpot_s or 1.0) - 1))
            off.append(abs(prediction.output_tokens_per_s.value / (row.output_tokens_per_s or 1.0) - 1))
    assert len(off) >= 10
    assert median(off) <= 0.02


def test_drafts_shorten_the_time_per_token_of_decode_replicas() -> None:
    times = []
    for mtp in (False, True):
        answer = penstock.predict("deepseek-r1", "gb200:8", mtp=mtp, dp=8, concurrency=64, input_tokens=7373, **POOLS)
        assert isinstance(answer, PredictDisaggregatedAnswer)
        times.append(answer.predictions[0].tpot_s.value)
    assert times[1] < 0.85 * times[0]
