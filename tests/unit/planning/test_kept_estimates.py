"""A kept estimate equals the computed one, and is used only for the same option, lengths and SLO."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from examples import deployment
from penstock.api import trial_files as module
from penstock.api.trial_files import ContentFiles, estimate_files
from penstock.performance.shipped.shipped_runs import shipped_efficiencies
from penstock.planning.candidates.kept_estimates import KeptEstimates
from penstock.planning.candidates.queueless_screen import QueuelessScreen
from penstock.planning.candidates.replica_capacity import Capacity, Option
from penstock.planning.spec.plan_types import Bucket, Share, WorkloadPlan
from penstock.workload import parse_slo
from small_plans import TWO_PARTS, plan_of

CHAT = replace(
    plan_of(TWO_PARTS).workloads[0],
    shares=(Share(bucket=Bucket(input_tokens=1024, output_tokens=256), fraction=1.0),),
    slo=parse_slo("ttft=1s,tpot=50ms"),
)
TRACED = Bucket(input_tokens=1024, output_tokens=256, rows=b"\1\0\0\0" * 4)
OPTION = Option(
    id="chat mi300x", weights="bf16", deployment=deployment("llama-3.1-8b", "mi300x"), measured_engine="vllm"
)


@dataclass
class Counted:
    """The real screen, which counts its calls."""

    calls: list[None] = field(default_factory=list)

    def __call__(self, option: Option, workload: WorkloadPlan) -> tuple[Capacity, ...]:
        self.calls.append(None)
        return QueuelessScreen(shipped_efficiencies()).medians(option, workload)


def kept(folder: Path, screen: Counted, corrections: object = (), program: str = "program") -> KeptEstimates:
    return KeptEstimates(screen, ContentFiles(folder, lambda: program), corrections)


def test_the_next_process_reads_exactly_what_the_first_computed(tmp_path: Path) -> None:
    first, second = Counted(), Counted()
    computed, read = kept(tmp_path, first)(OPTION, CHAT), kept(tmp_path, second)(OPTION, CHAT)
    assert read == computed == Counted()(OPTION, CHAT)
    assert computed[0].meets_slo
    assert computed[0].software is not None
    assert (len(first.calls), len(second.calls)) == (1, 0)


@pytest.mark.parametrize(
    ("option", "workload"),
    [
        (replace(OPTION, measured_engine="sglang"), CHAT),
        (replace(OPTION, deployment=deployment("llama-3.1-8b", "h100_sxm")), CHAT),
        (replace(OPTION, deployment=deployment("llama-3.1-70b", "mi300x")), CHAT),
        (OPTION, replace(CHAT, slo=parse_slo("ttft=1s,tpot=30ms"))),
        (OPTION, replace(CHAT, shares=(Share(bucket=Bucket(input_tokens=1024, output_tokens=255), fraction=1.0),))),
        (OPTION, replace(CHAT, shares=(Share(bucket=TRACED, fraction=1.0),))),
    ],
)
def test_another_option_length_or_slo_is_computed(tmp_path: Path, option: Option, workload: WorkloadPlan) -> None:
    screen = Counted()
    estimates = kept(tmp_path, screen)
    estimates(OPTION, CHAT)
    assert estimates(option, workload) == Counted()(option, workload)
    assert len(screen.calls) == 2


def test_corrections_and_a_changed_program_compute_again_and_the_rate_does_not(tmp_path: Path) -> None:
    screen = Counted()
    kept(tmp_path, screen)(OPTION, CHAT)
    kept(tmp_path, screen)(OPTION, replace(CHAT, requests_per_s=9.0))
    assert len(screen.calls) == 1
    kept(tmp_path, screen, corrections=("measured",))(OPTION, CHAT)
    kept(tmp_path, screen, program="another")(OPTION, CHAT)
    assert len(screen.calls) == 3


@pytest.mark.parametrize("spoil", [b"", b"[]", b"\xff", b'[{"curve": 1}]'])
def test_a_spoiled_file_is_computed_again(tmp_path: Path, spoil: bytes) -> None:
    screen = Counted()
    computed = kept(tmp_path, screen)(OPTION, CHAT)
    for path in tmp_path.iterdir():
        path.write_bytes(spoil)
    assert kept(tmp_path, screen)(OPTION, CHAT) == computed
    assert len(screen.calls) == 2


def test_a_document_of_another_shape_is_computed_again(tmp_path: Path) -> None:
    screen = Counted()
    computed = kept(tmp_path, screen)(OPTION, CHAT)

    class Other:
        def read(self, _key: str) -> object:
            return [{"curve": {"errors": [0.0]}, "software": None}]

        def write(self, _key: str, _document: object) -> None:
            pass

    assert KeptEstimates(screen, Other(), ())(OPTION, CHAT) == computed


def test_the_cache_can_be_turned_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(module.VARIABLE, "off")
    assert estimate_files() is None
    monkeypatch.setenv(module.VARIABLE, "on")
    found = estimate_files()
    assert found is not None
    assert found.program() == found.program() != ""
