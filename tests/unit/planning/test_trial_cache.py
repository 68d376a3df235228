"""Trials that are kept on disk change no answer, and a file that is damaged or of another program is not used."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from examples import deployment
from penstock.api import trial_files as module
from penstock.api.trial_files import TrialFiles, trial_files
from penstock.performance.shipped.shipped_runs import shipped_efficiencies
from penstock.planning.candidates.queueless_screen import QueuelessScreen
from penstock.planning.candidates.replica_capacity import Option
from penstock.planning.spec.plan_types import Bucket
from penstock.planning.verification.pool_simulator import Simulator
from penstock.planning.verification.simulated_capacity import PoolLoad
from penstock.simulation.capacity import Trial
from penstock.workload import Slo

PLACED = deployment("llama-3.1-8b", "h100", tp=1)
LOAD = PoolLoad(
    option=Option(id="one", weights="checkpoint", deployment=PLACED, measured_engine="vllm"),
    replicas=2,
    mix=((Bucket(input_tokens=800, output_tokens=100), 1.0),),
    requests_per_s=20.0,
    slo=Slo(ttft_s=0.5, tpot_s=0.02),
)


@dataclass
class CountedFiles:
    """Files that count how many trials were new."""

    files: TrialFiles
    written: list[float] = field(default_factory=list)

    def read(self, key: str) -> dict[float, Trial]:
        return self.files.read(key)

    def write(self, key: str, trials: Mapping[float, Trial]) -> None:
        self.written.append(list(trials)[-1])
        self.files.write(key, trials)


def answers(cache: CountedFiles | None, *, seed: int = 0) -> tuple[object, ...]:
    simulator = Simulator(QueuelessScreen(shipped_efficiencies()), seed=seed, cache=cache)
    return simulator.curve(LOAD), simulator.sustained(LOAD), simulator.attained(LOAD)


def test_cold_warm_and_without_a_cache_have_the_same_answer_and_warm_simulates_nothing(tmp_path: Path) -> None:
    cold, warm = CountedFiles(TrialFiles(tmp_path)), CountedFiles(TrialFiles(tmp_path))
    assert answers(cold) == answers(warm) == answers(None)
    assert cold.written
    assert not warm.written
    other = CountedFiles(TrialFiles(tmp_path))
    answers(other, seed=1)
    assert other.written


@pytest.mark.parametrize("damage", [lambda text: text[:-9], lambda text: text.replace("0", "1"), lambda _: "[]"])
def test_a_damaged_file_is_simulated_again(tmp_path: Path, damage: object) -> None:
    assert callable(damage)
    before = answers(CountedFiles(TrialFiles(tmp_path)))
    for path in tmp_path.iterdir():
        path.write_text(damage(path.read_text()))
    again = CountedFiles(TrialFiles(tmp_path))
    assert answers(again) == before
    assert again.written


def test_another_program_uses_no_trial_of_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(CountedFiles(TrialFiles(tmp_path)))
    monkeypatch.setattr(module, "_program", lambda: "edited")
    edited = CountedFiles(TrialFiles(tmp_path))
    answers(edited)
    assert edited.written


def test_the_oldest_files_are_deleted_when_there_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_FILES", 5)
    monkeypatch.setattr(module, "_KEPT_FILES", 2)
    for number in range(6):
        (tmp_path / f"{number}.json").touch()
    TrialFiles(tmp_path).files.prune()
    assert len(list(tmp_path.iterdir())) == 2


def test_the_cache_is_turned_off_by_its_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert trial_files() is None
    monkeypatch.delenv("PENSTOCK_TRIAL_CACHE")
    assert trial_files() == TrialFiles(tmp_path / "penstock" / "trials")


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert answers(CountedFiles(TrialFiles(tmp_path / "file"))) == answers(None)
