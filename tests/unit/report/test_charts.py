"""A chart needs the report extra; without it one line says what to install."""

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli.root import app
from penstock.errors import MissingExtra, UsageError
from penstock.report.drawing.chart_files import draw_chart
from penstock.report.simulate.timeline import timeline


def test_a_chart_without_its_extra_names_the_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(MissingExtra, match=r"pip install 'penstock\[report\]'"):
        draw_chart({}, ".svg", "a chart")
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(MissingExtra, match=r"pip install 'penstock\[report\]'"):
        timeline([], ".svg")


COMMANDS = {
    "plan": ["plan", "plan.yaml", "--html", "report.html"],
    "simulate": ["simulate", "llama-3.1-8b", "--on", "h100:1", "--chart", "run.html"],
    "simulate fleet": ["simulate", "--fleet", "fleet.yaml", "--chart", "run.svg"],
    "describe": ["workload", "describe", "requests.csv", "--chart", "requests.png"],
}


@pytest.mark.parametrize("case", COMMANDS)
def test_the_extra_is_asked_for_before_anything_is_read_or_computed(
    case: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "altair", None)
    failed = CliRunner().invoke(app, COMMANDS[case])
    assert isinstance(failed.exception, MissingExtra)
    assert str(failed.exception) == "charts need the report extra: pip install 'penstock[report]'"


def test_so_is_a_format_nobody_draws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    failed = CliRunner().invoke(app, ["workload", "describe", "requests.csv", "--chart", "requests.gif"])
    assert isinstance(failed.exception, UsageError)
    assert "is not a chart format" in str(failed.exception)
