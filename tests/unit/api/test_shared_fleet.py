"""The fleet file of models on shared devices: written, read again, simulated, and refused if it is wrong."""

import re
from dataclasses import replace

import pytest

import penstock
from penstock.api.arguments.shared_device_argument import swapping_devices
from penstock.catalog import load_accelerator
from penstock.errors import UsageError
from penstock.fleet.fleet_file import read_fleet, write_fleet
from penstock.fleet.pools import Fleet, NodeGroup, SharedDevice
from shared_fleets import MODELS, shared_fleet


def test_a_fleet_with_shared_devices_is_read_as_it_was_written() -> None:
    fleet = shared_fleet(2**30)
    assert read_fleet(write_fleet(fleet), "fleet.yaml") == fleet
    assert "shared_devices" not in write_fleet(replace(fleet, shared_devices=()))


def test_models_that_fit_together_start_awake_and_others_take_turns() -> None:
    (both,) = swapping_devices(shared_fleet(2**30))
    assert all(one.awake for one in both.models)
    (turns,) = swapping_devices(shared_fleet(40 * 2**30))
    assert not any(one.awake for one in turns.models)
    assert all(one.wake_s > 0 < one.sleep_s and one.patience_s == 2.0 for one in turns.models)


def test_simulated_models_wake_on_demand_and_no_request_is_lost() -> None:
    warm = penstock.simulate_fleet(shared_fleet(2**30), requests=200).runs[0].outcome
    cold = penstock.simulate_fleet(shared_fleet(40 * 2**30), requests=200).runs[0].outcome
    assert warm.requests == cold.requests == 200
    assert warm.devices[0].cold_starts == 0 < cold.devices[0].cold_starts
    assert cold.devices[0].peak_bytes <= cold.devices[0].capacity_bytes
    slowest_s = [run.classes[0].ttft.quantile_s(0.99) or 0.0 for run in (warm, cold)]
    assert slowest_s[1] > slowest_s[0] + 0.3


def test_the_policy_prefers_the_replica_whose_model_is_awake() -> None:
    """With two devices for two models, each device soon keeps one model, and few requests meet a model that sleeps."""
    one = penstock.simulate_fleet(shared_fleet(40 * 2**30), requests=200).runs[0].outcome
    two = penstock.simulate_fleet(shared_fleet(40 * 2**30, replicas=2), requests=200).runs[0].outcome
    blind = (
        penstock.simulate_fleet(shared_fleet(40 * 2**30, replicas=2), requests=200, policy="round-robin")
        .runs[0]
        .outcome
    )
    wakes = [sum(device.cold_starts for device in run.devices) for run in (two, blind, one)]
    assert wakes[0] < 10 < wakes[1]
    assert wakes[0] < wakes[2]


def with_settings(fleet: Fleet, **settings: float) -> Fleet:
    pools = (replace(pool, engine=replace(pool.engine, settings=settings)) for pool in fleet.pools)
    return replace(fleet, pools=tuple(pools))


def test_shares_of_the_memory_are_not_the_memory_of_the_device() -> None:
    (device,) = swapping_devices(with_settings(shared_fleet(2**30), gpu_memory_utilization=0.4))
    assert device.capacity_bytes == swapping_devices(shared_fleet(2**30))[0].capacity_bytes
    assert all(one.awake for one in device.models)


def launches(fleet: Fleet) -> list[str]:
    return [one.plan.bare() for one in penstock.preflight(fleet=fleet).answers]


def flag_of(launch: str, name: str) -> str | None:
    found = re.search(rf"--{name}(?: ([0-9.]+))?", launch)
    return None if found is None else found[1] or ""


def test_each_engine_of_a_device_is_launched_with_its_own_share_port_and_device() -> None:
    """An engine of vLLM that finds less than its share of the memory free refuses to start."""
    fleet = shared_fleet(2**30)
    awake = replace(fleet, shared_devices=(replace(fleet.shared_devices[0], kept_awake=MODELS[:1]),))
    first, second = launches(awake)
    shares = [float(flag_of(one, "gpu-memory-utilization") or 1) for one in (first, second)]
    (device,) = swapping_devices(awake)
    for share, model in zip(shares, device.models, strict=True):
        assert share * load_accelerator("h100").usable_hbm_bytes == pytest.approx(model.awake_bytes, rel=0.01)
    assert "CUDA_VISIBLE_DEVICES=0 " in first
    assert "CUDA_VISIBLE_DEVICES=0 " in second
    assert (flag_of(first, "port"), flag_of(second, "port")) == (None, "8001")
    assert flag_of(first, "enable-sleep-mode") is None
    assert flag_of(second, "enable-sleep-mode") == ""
    assert "VLLM_SERVER_DEV_MODE=1" in second
    assert flag_of(launches(with_settings(fleet, gpu_memory_utilization=0.4))[0], "gpu-memory-utilization") == "0.4"


def test_engines_of_the_next_device_take_the_next_device_of_the_machine() -> None:
    fleet = shared_fleet(2**30)
    alone = tuple(SharedDevice(name=f"gpu-{name}", pools=(name,)) for name in MODELS)
    first, second = launches(replace(fleet, shared_devices=alone))
    assert "CUDA_VISIBLE_DEVICES=0 " in first
    assert "CUDA_VISIBLE_DEVICES=1 " in second
    assert (flag_of(first, "port"), flag_of(second, "port")) == (None, "8001")
    single = (NodeGroup(accelerator="h100_sxm", site="here", nodes=2, node_devices=1),)
    assert "VISIBLE" not in "".join(launches(replace(fleet, shared_devices=alone, nodes=single)))


def test_a_fleet_whose_models_exceed_their_device_is_refused() -> None:
    fleet = shared_fleet(40 * 2**30)
    (device,) = fleet.shared_devices
    with pytest.raises(UsageError, match="lower `kv_cache_memory_bytes`"):
        penstock.preflight(fleet=replace(fleet, shared_devices=(replace(device, kept_awake=MODELS),)))


def test_devices_that_cannot_be_shared_are_refused() -> None:
    fleet = shared_fleet(2**30)
    with pytest.raises(UsageError, match="no pool is called 'other'"):
        replace(fleet, shared_devices=(SharedDevice(name="gpu", pools=("other",)),))
    with pytest.raises(UsageError, match="1 replicas, but 2 shared devices"):
        replace(fleet, shared_devices=(*fleet.shared_devices, replace(fleet.shared_devices[0], name="gpu 2")))
    with pytest.raises(UsageError, match="not one of its pools"):
        SharedDevice(name="gpu", pools=MODELS, kept_awake=("other",))
    with pytest.raises(UsageError, match="never fits"):
        swapping_devices(shared_fleet(70 * 2**30))
    with pytest.raises(UsageError, match="leave out --in"):
        penstock.simulate_fleet(fleet, requests=10, input_tokens=100)
