"""What people see, kept as files: refreshed only by `pytest --update-golden`."""

from collections.abc import Callable
from io import StringIO

from rich.console import Console, RenderableType

from examples import deployment, model
from penstock.catalog import load_accelerator, load_prices
from penstock.catalog.compare import compare
from penstock.performance.minimum import report_fit
from penstock.report.catalog import render_accelerator, render_comparison
from penstock.report.fit import render_fit
from penstock.report.inspect import render_model

Golden = Callable[[str, str], None]


def shown(view: RenderableType) -> str:
    console = Console(file=StringIO(), width=132, color_system=None)
    console.print(view)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def fit_view(name: str, parts: list[tuple[str, int]], context: int) -> str:
    spec = model(name)
    reports = [report_fit(deployment(spec, part, tp=tp), context) for part, tp in parts]
    return shown(render_fit(spec, reports, context, 132))


def test_fit_70b(golden: Golden) -> None:
    parts = [("mi300x", 1), ("h100", 1), ("h200", 1), ("b200", 1)]
    golden("fit_llama_70b.txt", fit_view("llama-3.1-70b", parts, 8192))


def test_fit_deepseek_long_context(golden: Golden) -> None:
    parts = [("mi355x", 8), ("mi300x", 8), ("b200", 8), ("h100", 8)]
    golden("fit_deepseek_r1_128k.txt", fit_view("deepseek-r1", parts, 131_072))


def test_fit_a_refused_split(golden: Golden) -> None:
    golden("fit_refused_split.txt", fit_view("llama-3.1-70b", [("h100", 3)], 8192))


def test_diff(golden: Golden) -> None:
    golden(
        "diff_mi300x_h100.txt", shown(render_comparison(compare(load_accelerator("mi300x"), load_accelerator("h100"))))
    )


def test_show(golden: Golden) -> None:
    golden("show_mi300x.txt", shown(render_accelerator(load_accelerator("mi300x"), load_prices("mi300x"))))


def test_inspect(golden: Golden) -> None:
    golden("inspect_deepseek_v4_flash.txt", shown(render_model(model("deepseek-v4-flash"), "the catalog", None)))


def test_pictures_read_without_colour() -> None:
    text = fit_view("llama-3.1-70b", [("mi300x", 1)], 8192)
    assert "█" in text
    assert "░" in text
    assert "KV cache" in text
