"""What people see: two reports kept as files (`pytest --update-golden` rewrites them), the figures of the others."""

from collections.abc import Callable
from dataclasses import replace
from io import StringIO

from rich.console import Console, RenderableType

from examples import deployment, model
from penstock.catalog import load_accelerator, load_accelerators, load_prices
from penstock.catalog.accelerator_diff import compare
from penstock.economics.price_diff import compare_prices
from penstock.performance.memory.minimum_change import report_fit
from penstock.report.catalog import render_accelerator, render_comparison, render_list, render_prices
from penstock.report.fit.terminal import render_fit
from penstock.report.inspect import render_model
from printed import row, words

Golden = Callable[[str, str], None]


def shown(view: RenderableType, width: int = 132) -> str:
    console = Console(file=StringIO(), width=width, color_system=None)
    console.print(view)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def fit_view(name: str, accelerators: list[tuple[str, int]], context: int, width: int = 132) -> str:
    spec = model(name)
    reports = [report_fit(deployment(spec, accelerator, tp=tp), context) for accelerator, tp in accelerators]
    unpriced = [None] * len(reports)
    return shown(render_fit(spec, reports, context, width, (unpriced, unpriced)), width)


def test_fit_70b() -> None:
    text = fit_view("llama-3.1-70b", [("mi300x", 1), ("h100", 1), ("h200", 1), ("b200", 1)], 8192)
    assert text.startswith("llama-3.1-70b  70.55B parameters, 131.4 GiB as bf16; KV bf16; vllm 0.32.0")
    assert row(text, "mi300x       tp1") == ["yes", "192.0", "131.4", "39.6", "129,826", "15", "129,824", "1"]
    assert row(text, "b200_sxm     tp1") == ["yes", "178.3", "131.4", "28.5", "93,478", "11", "93,472", "1"]
    for name, memory, short in (("h100_sxm", "79.2", "61.0"), ("h200_sxm", "139.8", "5.3")):
        assert row(text, f"{name}     tp1") == ["no", memory, "131.4", "-", "-", "-", "-", "2"]
        assert f"1 x {name} ({short} GiB short) what would fit: --precision fp8, or 2 devices (tp2)" in words(text)
    assert "114,128-136,035" in text
    assert "82,544-97,108" in text
    bars = [line for line in text.splitlines() if "██" in line and "GiB" in line]
    assert [bar.split()[0] for bar in bars] == ["mi300x", "h100_sxm", "h200_sxm", "b200_sxm"]
    assert ["▚" in bar for bar in bars] == [False, True, False, False]
    assert ["░" in bar for bar in bars] == [True, False, False, True]


def test_fit_deepseek_long_context() -> None:
    text = fit_view("deepseek-r1", [("mi355x", 8), ("mi300x", 8), ("b200", 8), ("h100", 8)], 131_072)
    assert text.startswith("deepseek-r1  671.0B, 37.55B active parameters, 626.9 GiB as fp8 + bf16 + fp32; KV bf16")
    assert row(text, "mi355x x8    tp8") == ["yes", "288.0", "79.5", "180.6", "2,759,273", "21", "163,840", "4"]
    assert row(text, "mi300x x8    tp8") == ["yes", "192.0", "79.5", "92.3", "1,409,762", "10", "163,840", "4"]
    assert row(text, "b200_sxm x8  tp8") == ["yes", "178.3", "79.5", "79.9", "1,220,174", "9", "163,840", "8"]
    assert row(text, "h100_sxm x8  tp8") == ["no", "79.2", "79.5", "-", "-", "-", "-", "16"]
    assert "8 x h100_sxm (10.5 GiB short) what would fit: 16 devices (tp8 pp2)" in words(text)
    assert "▓▓ experts" in text


def test_fit_a_refused_split() -> None:
    text = fit_view("llama-3.1-70b", [("h100", 3)], 8192)
    assert row(text, "h100_sxm x3  tp3") == ["no", *["-"] * 6, "2"]
    assert "64 attention heads do not divide over tp 3" in text
    assert "--precision fp8 with 1 device (tp1), or 2 devices (tp2)" in text


def test_fit_in_80_columns_cuts_no_number_short(golden: Golden) -> None:
    accelerators = [("mi355x", 8), ("rtx_pro_6000_server", 8), ("h100", 8), ("mi455x", 4)]
    text = fit_view("deepseek-r1", accelerators, 131_072, 80)
    assert "…" not in text
    golden("fit_80_columns.txt", text)


def test_a_fraction_too_high_still_shows_the_cache_and_what_is_over() -> None:
    placed = deployment("llama-3.1-70b", "mi300x")
    report = report_fit(replace(placed, engine=replace(placed.engine, memory_fraction=1.0)), 8192)
    bar = next(
        line
        for line in shown(render_fit(placed.model, [report], 8192, 132, ([None], [None]))).splitlines()
        if "█" in line
    )
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
    pair = load_accelerator("mi300x"), load_accelerator("h100")
    golden("diff_mi300x_h100.txt", shown(render_comparison(compare(*pair), compare_prices(*pair))))


def test_show() -> None:
    accelerator, prices = load_accelerator("mi300x"), load_prices("mi300x")
    text = shown(render_accelerator(accelerator, prices))
    assert text.startswith("AMD Instinct MI300X  amd, CDNA 3, OAM, shipping")
    facts = {
        "memory.hbm_bytes": "192.00 GiB derived",
        "memory.usable_hbm_bytes": "191.98 GiB measured",
        "dense_flops_per_s.bf16": "1,307.4 TFLOPS vendor spec",
        "sparse_flops_per_s.fp8": "5,229.8 TFLOPS vendor spec",
        "node.provisioned_watts_per_device": "1,790 W estimated",
        "fp8_dialect": "fnuz vendor spec",
        "link.per_peer_bytes_per_s_one_way": "64.0 GB/s derived",
    }
    for name, value in facts.items():
        *cells, source = row(text, name)
        assert " ".join(cells) == value
        assert f"\n{source} " in text  # the source is listed below
    assert f"{len(prices)} dated prices" in text


def test_inspect() -> None:
    text = shown(render_model(model("deepseek-v4-flash"), "the catalog", None))
    assert "284.3B parameters, 13.80B active (6 of 256 experts + 1 shared)" in text
    assert "43 layers, hidden 4,096, vocabulary 129,280, context 1,048,576 tokens" in text
    assert row(text, "routed_experts") == ["277.0B", "137.1", "mxfp4"]
    assert row(text, "mtp") == ["6.61B", "3.3", "bf16", "+", "fp32", "+", "fp8", "+", "mxfp4"]
    assert row(text, "attention") == ["5.09B", "5.0", "bf16", "+", "fp32", "+", "fp8"]
    assert row(text, "2       window") == ["0", "0", "state", "149,504"]
    assert row(text, "21      compressed_4") == ["6,069", "3,759", "all", "3,290,112"]
    assert row(text, "20      compressed_128") == ["160", "91", "all", "11,980,800"]
    assert row(text, "total") == ["6,229", "3,850", "15,420,416"]


def test_pictures_read_without_colour() -> None:
    text = fit_view("llama-3.1-70b", [("mi300x", 1)], 8192)
    assert "█" in text
    assert "░" in text
    assert "KV cache" in text
