"""Facts about a host, from recorded outputs of real ones and from hostile ones."""

import json
import os
import stat
from io import StringIO
from pathlib import Path
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import penstock
from penstock.api.doctor import doctor, host_of
from penstock.catalog import accelerator_ids
from penstock.errors import PenstockError, UsageError
from penstock.preflight.facts.host_readings import _ACCELERATORS, MAX_CHARACTERS, parse_host
from penstock.report.preflight.host import render_host

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


def test_a_folder_that_is_not_there_is_refused() -> None:
    with pytest.raises(PenstockError, match="is not a directory; give the one with the recorded outputs"):
        doctor(recorded=HOSTS / "nowhere")


def test_rocm_of_the_container_counts_before_that_of_the_host() -> None:
    readings = {"/opt/rocm/.info/version": "7.2.3-90\n", "amd-smi version": "ROCm version: 6.4.3"}
    readings["container"] = "docker"
    assert parse_host(readings).stated == {"rocm": "7.2.3", "install": "docker"}


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


@given(st.dictionaries(st.sampled_from(READINGS), st.text()))
def test_hostile_readings_give_short_plain_facts_or_none(readings: dict[str, str]) -> None:
    host = parse_host(readings)
    for text in (*host.stated.values(), *host.packages.values(), *(one.name for one in host.devices)):
        assert 0 < len(text) <= 80
        assert text.isprintable()


@pytest.mark.parametrize("piece", [" ", "\n", "Agent 1\n", "GPU 0: ", "FW_ID: CP_MEC1 ", "a==1 ", "\\"])
def test_huge_readings_take_no_time(piece: str) -> None:
    huge = piece * (MAX_CHARACTERS // len(piece))
    started = process_time()
    parse_host(dict.fromkeys(READINGS, huge))
    assert process_time() - started < 20


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


def test_the_rocm_of_a_host_without_an_engine_is_not_the_engines() -> None:
    readings = {"/opt/rocm/.info/version": "6.2.0", "amd-smi version": "x", "python": "3.10.1"}
    assert "rocm" not in parse_host(readings).stated
    assert parse_host(readings | {"packages": "vllm==0.28.0"}).stated["rocm"] == "6.2.0"
    assert parse_host(readings | {"container": "docker"}).stated["rocm"] == "6.2.0"


def test_a_container_in_the_command_has_its_own_rocm(tmp_path: Path) -> None:
    saved = tmp_path / "host.json"
    saved.write_text(doctor(recorded=HOSTS / "mi300x").to_json())
    line = "docker run --device /dev/kfd vllm/vllm-openai-rocm:v0.28.0 openai/gpt-oss-120b"
    for host, rocm in ((str(saved), "7.2.3"), ("rocm=7.1", "7.1")):
        (answer,) = penstock.preflight("gpt-oss-120b", "mi300x:1", command=line, host=[host]).answers
        assert str(answer.facts["host.rocm"]) == rocm


MIG = """GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)
  MIG 1g.10gb     Device  0: (UUID: MIG-2)
  MIG 1g.10gb     Device  1: (UUID: MIG-3)
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-4)
"""


def test_a_slice_of_a_device_is_not_the_device() -> None:
    host = parse_host({"nvidia-smi -L": MIG})
    found = {one.name: (one.accelerator, one.count) for one in host.devices}
    assert found["NVIDIA H100 80GB HBM3"] == ("h100_sxm", 1)
    assert found["NVIDIA H100 80GB HBM3 MIG 1g.10gb"] == (None, 2)
    assert host.target is None
    agent = "Agent 1\n  Marketing Name: AMD Instinct MI300X\n  Device Type: GPU\n  Compute Unit: {}\n"
    assert parse_host({"rocminfo": agent.format(304)}).target == "mi300x:1"
    assert parse_host({"rocminfo": agent.format(38)}).target is None


def test_the_last_line_names_the_devices_that_are_there() -> None:
    mixed = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: a)\nGPU 1: NVIDIA L40S (UUID: b)\n"
    texts = {}
    for name, listed in (("mixed", mixed), ("none", "")):
        written = StringIO()
        Console(file=written, width=120).print(render_host(parse_host({"nvidia-smi -L": listed}), ()))
        texts[name] = written.getvalue()
    assert "--on h100_sxm:1 " in texts["mixed"]
    assert "--on l40s:1 " in texts["mixed"]
    assert "mi300x" not in texts["mixed"] + texts["none"]
    assert "--on ACCELERATOR:COUNT" in texts["none"]
