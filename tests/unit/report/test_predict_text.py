"""The first screen of `predict` answers the question; `--explain` adds the evidence."""

import pytest
from rich.console import Console

import penstock
from penstock.errors import UsageError


def shown(*, explain: bool) -> str:
    answer = penstock.predict("llama-3.3-70b", "h200:2,mi355x", precision="fp8", engine="vllm", explain=explain)
    console = Console(width=80, color_system=None)
    with console.capture() as captured:
        console.print(answer.render(80))
    return captured.get()


def test_the_first_screen_has_the_answer_and_points_to_the_evidence() -> None:
    short = shown(explain=False)
    assert len(short.splitlines()) <= 32
    for part in ("rent, $ per Mtok out", "Result:", "Cheapest at catalog rents:", "Uncertain:", "--explain", "Next:"):
        assert part in short
    for evidence in ("ms per step", "nearest public measurements", "W per device", "specialised clouds"):
        assert evidence not in short
        assert evidence in shown(explain=True)


def test_explain_is_refused_where_it_would_change_nothing() -> None:
    with pytest.raises(UsageError, match="--explain"):
        penstock.predict("llama-3.3-70b", "h200:2", explain=True, prefill=1)
    with pytest.raises(UsageError, match="--explain"):
        penstock.sweep("llama-3.3-70b", "h200:2", explain=True, concurrency=[1, 4])
