"""The fleet file of models on shared devices: written, read again, simulated, and refused if it is wrong."""

from dataclasses import replace

import pytest

import penstock
from penstock.api.arguments.shared_device_argument import swapping_devices
from penstock.errors import UsageError
from penstock.fleet.fleet_file import read_fleet, write_fleet
from penstock.fleet.pools import SharedDevice
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
