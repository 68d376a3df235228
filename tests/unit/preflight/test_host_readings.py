"""Facts about a host, from recorded outputs of real ones and from hostile ones."""

import json
import os
import stat
from pathlib import Path
from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.api.doctor import doctor, host_of
from penstock.catalog import accelerator_ids
from penstock.errors import PenstockError, UsageError
from penstock.preflight.facts.host_readings import _ACCELERATORS, MAX_CHARACTERS, parse_host

HOSTS = Path(__file__).parents[2] / "data/hosts"
READINGS = (
    "rocminfo",
    "amd-smi version",
    "amd-smi firmware",
    "nvidia-smi",
    "nvidia-smi -L",
    "packages",
    "python",
    "install",
    "container",
    "/opt/rocm/.info/version",
    "/proc/sys/kernel/numa_balancing",
    "/sys/module/amdgpu/version",
)


def test_an_amd_host_with_a_wheel() -> None:
    host = doctor(recorded=HOSTS / "mi300x").host
    assert host.target == "mi300x:2"
    assert host.stated == {
        "rocm": "7.0.2",
        "mec_firmware": "138",
        "numa_balancing": "yes",
        "python": "3.11",
        "install": "wheel",
        "triton": "3.5.0",
    }
    assert host.driver is not None
    assert host.driver.value == "6.14.14"
    assert host.packages == {"torch": "2.9.0", "triton": "3.5.0", "vllm": "0.28.0"}


def test_an_nvidia_host_in_a_container() -> None:
    host = doctor(recorded=HOSTS / "h100").host
    assert host.target == "h100_sxm:8"
    assert host.stated == {"python": "3.10", "install": "docker", "triton": "2.3.1"}
    assert host.driver is not None
    assert host.driver.value == "550.90.07"


def test_a_host_of_which_little_was_recorded() -> None:
    host = doctor(recorded=HOSTS / "mi250x").host
    assert host.target == "mi250x:1"
    assert host.stated == {}


def test_rocm_of_the_container_counts_before_that_of_the_host() -> None:
    readings = {"/opt/rocm/.info/version": "7.2.3-90\n", "amd-smi version": "ROCm version: 6.4.3"}
    assert parse_host(readings).stated == {"rocm": "7.2.3"}


def test_a_saved_host_decides_rules_and_names_devices_and_release(tmp_path: Path) -> None:
    saved = tmp_path / "host.json"
    saved.write_text(doctor(recorded=HOSTS / "mi300x").to_json(), encoding="utf-8")
    (answer,) = penstock.preflight("llama-3.1-8b", host=[str(saved)]).answers
    assert answer.question.accelerator.id == "mi300x"
    assert answer.question.asked.parallelism.devices == 2
    assert str(answer.question.version) == "0.28.0"
    assert {"host-mec-firmware", "host-rocm-wheel-python"} <= {found.rule.id for found in answer.assessment.findings}
    # What is typed counts before what was read.
    typed = penstock.preflight("llama-3.1-8b", "mi300x", host=[str(saved), "mec_firmware=180", "python=3.12"])
    assert typed.good


def test_programs_of_this_host_are_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, file in (("rocminfo", "rocminfo.txt"), ("amd-smi", "amd-smi-version.txt")):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\ncat {HOSTS / 'mi300x' / file}\n", encoding="utf-8")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = host_of("here")
    assert found.target == "mi300x:2"
    assert found.driver is not None


def test_every_name_leads_to_an_accelerator_of_the_catalog() -> None:
    assert {known for _, known in _ACCELERATORS} <= set(accelerator_ids())
    names = {
        "AMD Instinct MI300X VF": "mi300x",
        "NVIDIA H200": "h200_sxm",
        "NVIDIA H100 PCIe": "h100_pcie",
        "NVIDIA GB200": "gb200",
        "NVIDIA A100-SXM4-40GB": None,
    }
    for name, expected in names.items():
        (device,) = parse_host({"nvidia-smi -L": f"GPU 0: {name} (UUID: GPU-1)\n"}).devices
        assert device.accelerator == expected
    slices = "GPU 0: NVIDIA H200 (UUID: GPU-1)\n  MIG 1g.10gb     Device  0: (UUID: MIG-2)\n"
    assert parse_host({"nvidia-smi -L": slices}).target == "h200_sxm:1"


@given(st.dictionaries(st.sampled_from(READINGS), st.text()))
def test_hostile_readings_give_short_plain_facts_or_none(readings: dict[str, str]) -> None:
    host = parse_host(readings)
    for text in (*host.stated.values(), *host.packages.values(), *(one.name for one in host.devices)):
        assert 0 < len(text) <= 80
        assert text.isprintable()


@pytest.mark.parametrize("piece", [" ", "\n", "Agent 1\n", "GPU 0: ", "FW_ID: CP_MEC1 ", "a==1 ", "\\"])
def test_huge_readings_take_no_time(piece: str) -> None:
    huge = piece * (MAX_CHARACTERS // len(piece))
    started = perf_counter()
    parse_host(dict.fromkeys(READINGS, huge))
    assert perf_counter() - started < 20


@pytest.mark.parametrize(
    "text",
    ["", "[1]", "{", '{"schema": "penstock.host/1"}', "[" * 100_000, '{"schema": "penstock.host/1", "facts": 3}', "\0"],
)
def test_a_hostile_file_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "host.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(PenstockError) as refused:
        penstock.preflight("llama-3.1-8b", "mi300x", host=[str(file)])
    assert "\n" not in str(refused.value)


def test_a_saved_fact_that_no_rule_knows_is_refused(tmp_path: Path) -> None:
    document = json.loads(doctor(recorded=HOSTS / "mi300x").to_json())
    document["facts"].append({"name": "colour", "value": "red", "reading": "eyes"})
    (tmp_path / "host.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(UsageError, match="unknown fact 'colour'"):
        penstock.preflight("llama-3.1-8b", "mi300x", host=[str(tmp_path / "host.json")])


def test_a_python_that_does_not_run_is_named() -> None:
    with pytest.raises(UsageError, match="is not a Python that runs"):
        doctor(python="/nowhere/python")
