"""A chart needs the report extra; without it one line says what to install."""

import sys

import pytest

from penstock.errors import MissingExtra
from penstock.report.drawing.charts import drawn
from penstock.report.simulate.timeline import timeline


def test_a_chart_without_its_extra_names_the_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(MissingExtra, match=r"pip install 'penstock\[report\]'"):
        drawn({}, ".svg", "a chart")
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(MissingExtra, match=r"pip install 'penstock\[report\]'"):
        timeline([], ".svg")
