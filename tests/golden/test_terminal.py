"""What people see, kept as files: refreshed only by `pytest --update-golden`."""

from collections.abc import Callable
from dataclasses import replace
from io import StringIO

from rich.console import Console, RenderableType

from examples import deployment, model
from penstock.catalog import load_accelerator, load_accelerators, load_prices
from penstock.catalog.accelerator_diff import compare
from penstock.performance.memory.minimum import report_fit
from penstock.report.catalog import render_accelerator, render_comparison, render_list, render_prices
from penstock.report.fit.terminal import render_fit
from penstock.report.inspect import render_model

Golden = Callable[[str, str], None]


def shown(view: RenderableType, width: int = 132) -> str:
    console = Console(file=StringIO(), width=width, color_system=None)
    console.print(view)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def fit_view(name: str, parts: list[tuple[str, int]], context: int, width: int = 132) -> str:
    spec = model(name)
    reports = [report_fit(deployment(spec, part, tp=tp), context) for part, tp in parts]
    return shown(render_fit(spec, reports, context, width), width)


def test_fit_70b(golden: Golden) -> None:
    parts = [("mi300x", 1), ("h100", 1), ("h200", 1), ("b200", 1)]
    golden("fit_llama_70b.txt", fit_view("llama-3.1-70b", parts, 8192))


def test_fit_deepseek_long_context(golden: Golden) -> None:
    parts = [("mi355x", 8), ("mi300x", 8), ("b200", 8), ("h100", 8)]
    golden("fit_deepseek_r1_128k.txt", fit_view("deepseek-r1", parts, 131_072))


def test_fit_a_refused_split(golden: Golden) -> None:
    golden("fit_refused_split.txt", fit_view("llama-3.1-70b", [("h100", 3)], 8192))


def test_fit_in_80_columns_cuts_no_number_short(golden: Golden) -> None:
    parts = [("mi355x", 8), ("rtx_pro_6000_server", 8), ("h100", 8), ("mi455x", 4)]
    text = fit_view("deepseek-r1", parts, 131_072, 80)
    assert "…" not in text
    golden("fit_80_columns.txt", text)


def test_a_fraction_too_high_still_shows_the_cache_and_what_is_over() -> None:
    placed = deployment("llama-3.1-70b", "mi300x")
    report = report_fit(replace(placed, engine=replace(placed.engine, memory_fraction=1.0)), 8192)
    bar = next(line for line in shown(render_fit(placed.model, [report], 8192, 132)).splitlines() if "█" in line)
    assert "░" in bar
    assert "▚" in bar


def test_lists_in_80_columns_cut_no_number_short() -> None:
    lists = shown(render_list(load_accelerators(), 80), 80)
    prices = shown(render_prices("h100_sxm", load_prices("h100"), 80), 80)
    assert "…" not in lists + prices
    assert "2,614.9" in lists or "2,615" in lists
    for price in load_prices("h100"):
        assert f"{price.usd_per_device:,.2f}" in prices


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
