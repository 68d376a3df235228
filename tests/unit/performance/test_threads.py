"""Linear algebra of small matrices takes one thread, and a program's own setting is as it was afterwards."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from examples import deployment
from penstock.performance.prediction.serving_stack import stack_of
from penstock.performance.shipped.shipped_runs import shipped_efficiencies
from penstock.performance.similarity import posterior
from penstock.performance.similarity.blas_threads import STATED_BY, OpenBlas, one_thread, openblas
from penstock.performance.similarity.cases import Cases
from penstock.performance.similarity.posterior import Evidence
from penstock.performance.step.step_work import Array, ReplicaWork

THREADS = 2


@pytest.fixture
def blas(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenBlas]:
    """A program whose user states no number of threads, and whose OpenBLAS has two."""
    found = openblas()
    if found is None:
        pytest.skip("numpy was built with another library")
    for name in STATED_BY:
        monkeypatch.delenv(name, raising=False)
    before = found.threads()
    found.limit(THREADS)
    yield found
    found.limit(before)


def test_a_prediction_takes_one_thread_and_leaves_the_setting_as_it_was(
    blas: OpenBlas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan called from Python spent 44% of its processor time in threads that spin."""
    inside: list[int] = []
    spread = posterior.Evidence.spread

    def counted(evidence: Evidence, asked: Cases) -> Array:
        inside.append(blas.threads())
        return spread(evidence, asked)

    monkeypatch.setattr(posterior.Evidence, "spread", counted)
    found = stack_of(ReplicaWork(deployment("llama-3.1-8b", "h100")), "vllm", shipped_efficiencies())
    assert found.spread[0] < found.spread[1]
    assert set(inside) == {1}
    assert blas.threads() == THREADS


def test_whoever_leaves_last_restores_it(blas: OpenBlas) -> None:
    both, left = Barrier(2), Barrier(2)

    def first() -> int:
        with one_thread():
            both.wait()
        left.wait()
        return blas.threads()

    def last() -> int:
        with one_thread():
            both.wait()
            left.wait()
            return blas.threads()

    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(first), pool.submit(last)]
        assert asked[1].result() == 1
    assert blas.threads() == THREADS


@pytest.mark.parametrize("name", STATED_BY)
def test_a_number_that_the_user_states_is_left(blas: OpenBlas, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, str(THREADS))
    with one_thread():
        assert blas.threads() == THREADS
