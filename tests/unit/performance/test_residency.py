"""Which models share a device: memory laws, and times against the published ones."""

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import accelerator_with, deployment, model
from penstock.api.arguments.host_loads_argument import host_loads_choice
from penstock.catalog import load_accelerator
from penstock.catalog.accelerator import Accelerator
from penstock.errors import DeploymentError, UsageError
from penstock.performance import fit
from penstock.performance.residency.co_residence import asleep_bytes, share_memory
from penstock.performance.residency.host_loads import host_loads
from penstock.performance.residency.lora_adapters import adapter_bytes, adapter_load_s
from penstock.performance.residency.packing import pack
from penstock.performance.residency.published_times import PUBLISHED, Transition
from penstock.performance.residency.transition_times import (
    TransitionSeconds,
    pcie_bytes_per_s,
    sleep_to_host,
    start,
    wake_from_disk,
    wake_from_host,
)
from penstock.units import GIB

SMALL = ("llama-3.1-8b", "qwen3-8b", "mistral-7b", "qwen3-4b", "llama-3.2-3b", "gpt-oss-20b", "qwen3-14b")
CONTEXT = 2048


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("name", ["llama-3.1-8b", "gpt-oss-20b", "gemma-2-9b"])
def test_one_model_has_exactly_the_memory_that_fit_gives_it(name: str, engine: str) -> None:
    placed = deployment(name, "mi300x", engine=engine)  # type: ignore[arg-type] # a literal by parametrisation
    alone = fit(placed, CONTEXT)
    shared = share_memory([placed], [CONTEXT])
    assert shared.shares[0].fit == alone
    assert alone.budget is not None
    assert shared.kv_bytes == shared.shares[0].kv_bytes == alone.budget.kv_bytes


@settings(max_examples=30, deadline=None)
@given(
    names=st.lists(st.sampled_from(SMALL), min_size=1, max_size=6, unique=True),
    gib=st.integers(20, 400),
    heavy=st.floats(0.1, 10.0),
)
def test_shares_never_exceed_the_device(names: list[str], gib: int, heavy: float) -> None:
    accelerator = accelerator_with("mi300x", gib * GIB)
    placed = [deployment(name, accelerator) for name in names]
    weights = [heavy, *[1.0] * (len(names) - 1)]
    shared = share_memory(placed, [CONTEXT] * len(names), weights=weights)
    assert shared.low_kv_bytes <= shared.kv_bytes <= shared.high_kv_bytes
    assert sum(share.kv_bytes for share in shared.shares) <= max(0, shared.kv_bytes)
    if shared.fits:
        assert sum(share.resident_bytes for share in shared.shares) <= shared.available_bytes <= gib * GIB


@settings(max_examples=20, deadline=None)
@given(names=st.lists(st.sampled_from(SMALL), min_size=1, max_size=7, unique=True), gib=st.integers(24, 200))
def test_packing_keeps_every_model_once_and_every_group_fits(names: list[str], gib: int) -> None:
    accelerator = accelerator_with("h100", gib * GIB)
    packing = pack([deployment(name, accelerator) for name in names], [CONTEXT] * len(names))
    packed = [share.name for group in packing.groups for share in group.shares]
    assert sorted([*packed, *packing.too_large]) == sorted(names)
    assert all(group.fits for group in packing.groups)


def test_another_model_leaves_less_for_the_kv_cache() -> None:
    placed = [deployment(name, "mi300x") for name in SMALL]
    left = [share_memory(placed[:count], [CONTEXT] * count).kv_bytes for count in range(1, len(SMALL) + 1)]
    assert left == sorted(left, reverse=True)


def test_a_shared_device_needs_one_accelerator_and_one_split() -> None:
    with pytest.raises(DeploymentError, match="same accelerator"):
        share_memory([deployment("qwen3-8b", "h100"), deployment("qwen3-4b", "mi300x")], [CONTEXT] * 2)
    with pytest.raises(DeploymentError, match="use pp 1 and dp 1"):
        share_memory([deployment("qwen3-8b", "h100", pp=2)], [CONTEXT])


def test_a_sleeping_engine_keeps_about_what_a_published_log_shows() -> None:
    # llm-d-fast-model-actuation issue 746: 78.66 - 77.39 GiB of an H100 while one vLLM sleeps.
    assert asleep_bytes(deployment("qwen3-4b", "h100")) / GIB == pytest.approx(78.66 - 77.39, rel=0.25)


PREDICTED: Mapping[Transition, Callable[[Accelerator, str, float], TransitionSeconds | None]] = {
    Transition.WAKE_FROM_HOST: wake_from_host,
    Transition.SLEEP_TO_HOST: sleep_to_host,
    Transition.WAKE_FROM_DISK: wake_from_disk,
    Transition.START: start,
}


def test_published_times_lie_in_the_interval_or_near_it() -> None:
    """The P10-P90 comes from the same few times, so eight of ten lie inside; no time is further than a factor of 5."""
    a100, inside, asked = load_accelerator("a100_80gb_sxm"), 0, 0
    for row in PUBLISHED:
        if row.transition in PREDICTED:
            taken = PREDICTED[row.transition](a100, "vllm", row.bytes_per_rank)
            assert taken is not None
            assert taken.tier == "calibrated"
            assert 1 / 5 < row.seconds / taken.median_s < 6, row
            inside += taken.low_s <= row.seconds <= taken.high_s
            asked += 1
    assert inside / asked >= 0.6


@given(size=st.floats(1e8, 1e12), more=st.floats(1.0, 10.0))
def test_more_bytes_never_load_faster(size: float, more: float) -> None:
    accelerator = load_accelerator("mi355x")
    for predict in (wake_from_host, sleep_to_host, wake_from_disk, start):
        before, after = predict(accelerator, "vllm", size), predict(accelerator, "vllm", size * more)
        assert before is not None
        assert after is not None
        assert before.low_s <= before.median_s <= before.high_s
        assert before.median_s <= after.median_s


def test_a_faster_link_wakes_faster_and_an_unknown_link_is_undetermined() -> None:
    assert pcie_bytes_per_s("5.0 x16") == 2 * pcie_bytes_per_s("4.0 x16")
    fast, slow = load_accelerator("h100"), load_accelerator("a100_80gb_sxm")
    at_fast, at_slow = wake_from_host(fast, "vllm", 16e9), wake_from_host(slow, "vllm", 16e9)
    assert at_fast is not None
    assert at_slow is not None
    assert at_fast.median_s < at_slow.median_s
    assert at_fast.tier == "transferred"
    assert wake_from_host(load_accelerator("gb200"), "vllm", 16e9) is None  # the catalog states no PCIe link
    assert wake_from_host(fast, "trtllm", 16e9) is None


def test_adapters_follow_from_rank_and_shapes() -> None:
    llama = model("llama-3.1-8b")
    # Per layer: q and o 4096+4096, k and v 4096+1024, gate, up and down 4096+14336; 32 layers, 2 bytes.
    per_layer = 2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336)
    assert adapter_bytes(llama, 16) == 2 * 16 * 32 * per_layer
    assert adapter_bytes(llama, 32) == 2 * adapter_bytes(llama, 16)
    assert adapter_bytes(llama, 16, ["q_proj"]) == 2 * 16 * 32 * (4096 + 4096)
    # ServerlessLLM states 0.37 s to read an adapter of 1 GB.
    assert adapter_load_s(1e9).median - adapter_load_s(0).median == pytest.approx(0.37, rel=0.1)
    # The time of a running engine before bytes move, as measured with vLLM over HTTP.
    assert adapter_load_s(0).median == pytest.approx(0.04, abs=0.01)
    assert adapter_load_s(1e9, disk_bytes_per_s=1e9).median == pytest.approx(1.04, abs=0.01)
    with pytest.raises(DeploymentError, match="none of the modules"):
        adapter_bytes(llama, 16, ["nothing"])


@pytest.mark.parametrize("accelerator", ["mi355x", "h100"])
def test_each_cache_holds_the_same_number_of_requests(accelerator: str) -> None:
    """A cache with sliding windows needs more bytes for its first request than for the others."""
    names = ("llama-3.1-8b", "gpt-oss-20b", "qwen3-14b")
    shared = share_memory([deployment(name, accelerator) for name in names], [8192] * 3)
    held = [share.fit.capacity.cached_requests for share in shared.shares if share.fit and share.fit.capacity]
    assert len(held) == 3
    assert max(one or 0 for one in held) - min(one or 0 for one in held) <= 1


@given(
    fixed_s=st.floats(0.0, 100.0),
    s_per_gb=st.floats(0.01, 10.0),
    sizes=st.lists(st.floats(1e6, 1e12), min_size=2, max_size=6, unique=True).filter(
        lambda all_: max(all_) > 2 * min(all_)
    ),
)
def test_a_host_that_follows_a_line_is_known_from_its_loads(
    fixed_s: float, s_per_gb: float, sizes: list[float]
) -> None:
    found = host_loads([(size, fixed_s + s_per_gb * size / 1e9) for size in sizes])
    for size in sizes:
        assert found.seconds(size) == pytest.approx(fixed_s + s_per_gb * size / 1e9, rel=1e-4)


@given(measured=st.lists(st.tuples(st.floats(1e6, 1e12), st.floats(1e-3, 1e3)), min_size=2, max_size=6))
def test_a_larger_model_never_loads_faster_and_no_time_is_negative(measured: list[tuple[float, float]]) -> None:
    if len({size for size, _ in measured}) < 2:
        with pytest.raises(ValueError, match="two sizes"):
            host_loads(measured)
        return
    found = host_loads(measured)
    assert 0 <= found.seconds(0) <= found.seconds(1e9) <= found.seconds(1e12)


@pytest.mark.parametrize(
    "text", ["", "1GB=2s", "1GB=2s,1GB=3s", "1GB=2s,2GB", "1GB=fast,2GB=3s", "0GB=1s,2GB=3s", "1=2s,2=3s"]
)
def test_loads_that_tell_no_line_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        host_loads_choice("starts", text)
    assert "\n" not in str(refused.value)
