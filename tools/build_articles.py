"""Writes docs/articles.md: tables of published articles, each next to the figures of this catalog.

    python tools/build_articles.py

Every figure of ours comes from `fit`, `predict` and the catalog's prices, with its interval, sellers and dates.
"""

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, date, datetime
from math import inf
from pathlib import Path

import penstock
from penstock.catalog import load_accelerator
from penstock.catalog.device_prices import DevicePrice, hourly_rent
from penstock.economics.rent_rates import rent_usd_per_gib_month
from penstock.performance.prediction.predict_deployment import Range

PAGE = Path(__file__).parent.parent / "docs" / "articles.md"
PARTS = ("h100", "h200", "b200", "mi300x", "mi325x", "mi355x")
BATCH, PROMPT, ANSWER = 128, 1024, 256
DEEP_DIVE = "AMD GPU & ROCm Deep Dive: Can It Challenge CUDA for LLM Inference?"
MEMORY_WALL = "AMD MI300X vs NVIDIA H100 for LLM Inference: The Memory Wall and the Software Tax"
SCORECARD = "AMD's private inference stack"
SHOWDOWN = "AMD Instinct MI350 vs NVIDIA Blackwell: The Inference Showdown of 2026"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return [f"| {' | '.join(line)} |" for line in lines] + [""]


def text(*pieces: str) -> str:
    """Join the pieces of a paragraph."""
    return " ".join(pieces)


def span(value: Range | None, digits: int = 0, before: str = "") -> str:
    """Format a figure with its P10-P90."""
    if value is None:
        return "-"
    return f"{before}{value.value:,.{digits}f} ({value.low:,.{digits}f}-{value.high:,.{digits}f})"


def rent_of(name: str) -> DevicePrice:
    """Return the rent of an accelerator that has one."""
    found = hourly_rent(load_accelerator(name).id)
    if found is None:
        raise SystemExit(f"{name} has no rent in the catalog")
    return found


def speed(model: str, on: str, users: int, precision: str | None = None) -> tuple[Range, Range, Range | None]:
    """Return output tokens per second, seconds per output token and dollars per million output tokens."""
    answer = penstock.predict(
        model, on, concurrency=users, input_tokens=PROMPT, output_tokens=ANSWER, precision=precision
    )
    if not isinstance(answer, penstock.PredictAnswer):
        raise TypeError("a prediction without prefill replicas was asked for")
    found = answer.predictions[0]
    return found.output_tokens_per_s, found.tpot_s, answer.costs_usd_per_output_mtok[0]


def memory_per_dollar() -> list[str]:
    """Compare memory capacity per dollar, which one article names and none computes."""
    rows, dearest, cheapest = [], 0.0, inf
    for name in PARTS:
        part, rent = load_accelerator(name), rent_of(name)
        low, middle, high = (
            rent_usd_per_gib_month(usd, part.memory.hbm_bytes)
            for usd in (rent.low_usd_per_device, rent.usd_per_device, rent.high_usd_per_device)
        )
        if part.vendor == "amd":
            dearest = max(dearest, high)
        else:
            cheapest = min(cheapest, low)
        sellers = f"{rent.sellers} {rent.seller_class}s, {rent.first_date} to {rent.last_date}"
        price = f"{rent.usd_per_device:.2f} ({rent.low_usd_per_device:.2f}-{rent.high_usd_per_device:.2f})"
        rows.append([name, f"{part.memory.nominal_gb:g} GB", price, f"{middle:.2f} ({low:.2f}-{high:.2f})", sellers])
    return [
        "## Memory per dollar",
        "",
        text(
            f'"{SHOWDOWN}": "memory capacity per dollar changes the scheduling math", without a figure.',
            "Ours (`penstock catalog diff A B`), with the quartiles of the sellers:",
        ),
        "",
        *table(("accelerator", "memory", "$ per device-hour", "$ per GiB and month", "offers"), rows),
        text(
            f"Where we differ: not in direction. The dearest AMD quartile is ${dearest:.2f} per GiB and month,",
            f"the cheapest NVIDIA quartile ${cheapest:.2f}.",
            "The MI350X itself has no published rent; the MI355X stands for it.",
        ),
        "",
    ]


def capacity_by_count() -> list[str]:
    """Compare the numbers of devices that hold a model."""
    cases = (
        ("70B FP16", "llama-3.1-70b", "bf16", 8192, "2 H100, 1 MI300X (both articles)"),
        ("70B FP16, one request of 32k", "llama-3.1-70b", "bf16", 32_768, "1 MI300X, about 160 GB (Deep Dive)"),
        ("405B FP16", "llama-3.1-405b", "bf16", 8192, "2 MI300X, 4 to 6 H100 (Memory Wall)"),
        ("405B FP8", "llama-3.1-405b", "fp8", 8192, "2 MI300X, 3 or more H100 (Deep Dive, no format stated)"),
    )
    rows = []
    for label, model, precision, context, theirs in cases:
        answer = penstock.fit(model, ",".join(PARTS), precision=precision, context=context)
        ours = [str(report.fewest_devices or "-") for report in answer.reports]
        rows.append([label, theirs, *ours])
    return [
        "## Capacity by number of devices",
        "",
        text(
            f'From "{MEMORY_WALL}" and "{DEEP_DIVE}".',
            "Ours is the fewest devices by `penstock fit`, with vLLM's reserves and splits that divide the heads:",
        ),
        "",
        *table(("model", "authors", *PARTS), rows),
        text(
            "Where we differ: 405B. Two MI300X hold 384 GiB; the FP16 weights alone take about 756 GiB and the FP8",
            "weights about 378 GiB, before any KV cache or reserve. Three devices do not divide the attention heads.",
        ),
        "",
    ]


def cost_per_mtok() -> list[str]:
    """Compare the cost of output tokens, in rent at the predicted throughput."""
    rows, usd_of = [], dict[str, Range | None]()
    for on in ("h100:2", "h200:2", "b200:1", "mi300x:1", "mi325x:1", "mi355x:1"):
        rate, tpot, usd = speed("llama-3.1-70b", on, BATCH)
        name, _, devices = on.partition(":")
        usd_of[name] = usd
        per_device = Range(**{key: getattr(rate, key) / int(devices) for key in ("value", "low", "high")})
        rows.append([f"{name} x{devices}", span(per_device), span(tpot.scaled(1e3), 1), span(usd, 2, "$")])
    return [
        "## Cost per million tokens",
        "",
        text(
            f'"{DEEP_DIVE}" publishes 2,800 tok/s for one H100 and 2,200 tok/s for one MI300X on Llama 3.1 70B FP16,',
            f"without a cost. Ours (`penstock predict`): BF16, {PROMPT:,} in, {ANSWER} out, {BATCH} users, P10-P90;",
            "rent of the devices over output tokens:",
        ),
        "",
        *table(("deployment", "tok/s per device", "TPOT ms", "rent per million output tokens"), rows),
        text(
            "Where we differ: 70B FP16 does not fit one H100, so its row cannot have been measured as stated.",
            "Two H100 are needed, and the KV cache that they have left limits the batch.",
        ),
        "",
        text(
            f'"{SCORECARD}" reports a projection of 31% lower cost per token for MI325X against H200 on a 70B model,',
            "and 19% after two more engineers. At this load and today's rents ours is",
            f"{_lower(usd_of['mi325x'], usd_of['h200'])}, without an SLO and people; `penstock plan` adds both.",
        ),
        "",
    ]


def recommendations() -> list[str]:
    """Compare the workload recommendations of two articles."""
    rent = {name: rent_of(name) for name in ("mi300x", "h100")}
    cheaper = 1 - rent["mi300x"].usd_per_device / rent["h100"].usd_per_device
    one = {on: speed("llama-3.1-70b", on, 1)[1].scaled(1e3) for on in ("mi300x:1", "h100:2")}
    many = {on: speed("llama-3.1-70b", on, BATCH, "fp8") for on in ("mi300x:1", "h100:2")}
    small = {on: speed("llama-3.1-8b", on, 1)[1].scaled(1e3) for on in ("mi355x:1", "b200:1")}
    batch = {on: speed("llama-3.1-70b", on, BATCH)[2] for on in ("mi355x:1", "b200:1")}
    rows = [
        ["70B on one device", "AMD (Deep Dive)", "AMD", "fits 1 MI300X, not 1 H100 (table below)"],
        [
            "large-batch throughput",
            "NVIDIA (Deep Dive)",
            _cheapest(many["mi300x:1"][2], many["h100:2"][2], "AMD", "NVIDIA"),
            text(
                f"70B FP8, {BATCH} users, tok/s: MI300X x1 {span(many['mi300x:1'][0])},",
                f"H100 x2 {span(many['h100:2'][0])}; rent per million output tokens",
                f"{span(many['mi300x:1'][2], 2, '$')} and {span(many['h100:2'][2], 2, '$')}",
            ),
        ],
        [
            "single-request latency",
            "NVIDIA (Deep Dive)",
            _cheapest(one["mi300x:1"], one["h100:2"], "AMD", "NVIDIA"),
            f"TPOT ms: MI300X x1 {span(one['mi300x:1'], 1)}, H100 x2 {span(one['h100:2'], 1)}, on twice the devices",
        ],
        [
            "price efficiency",
            "AMD, 30-40% cheaper (Deep Dive)",
            "AMD" if cheaper > 0 else "NVIDIA",
            text(
                f"rent per device-hour is {cheaper:.0%} lower: ${rent['mi300x'].usd_per_device:.2f} and",
                f"${rent['h100'].usd_per_device:.2f}; memory per dollar is the larger difference",
            ),
        ],
        [
            "70B, sustained batch",
            "MI350X (Showdown)",
            _cheapest(batch["mi355x:1"], batch["b200:1"], "MI355X", "B200"),
            text(
                f"rent per million output tokens: MI355X {span(batch['mi355x:1'], 2, '$')},",
                f"B200 {span(batch['b200:1'], 2, '$')}; with an SLO it turns with load:",
                "`penstock guide llama-3.1-70b`",
            ),
        ],
        [
            "under 5 ms, small batches",
            "B200 (Showdown)",
            _cheapest(small["mi355x:1"], small["b200:1"], "MI355X", "B200"),
            f"8B, one user, TPOT ms: MI355X {span(small['mi355x:1'], 1)}, B200 {span(small['b200:1'], 1)}",
        ],
        ["fine-tuning, training, Windows", "NVIDIA (both)", "not judged", "outside what Penstock predicts"],
    ]
    return [
        "## Workload recommendations",
        "",
        text(
            f'From "{DEEP_DIVE}" (MI300X against H100) and "{SHOWDOWN}" (MI350X against B200; ours is the MI355X).',
            "`close` means that the P10-P90 intervals overlap:",
        ),
        "",
        *table(("workload", "authors", "ours", "figures"), rows),
        text(
            "Where we differ: the authors give one vendor per workload. The cheapest vendor turns with prompt length,",
            "load and rent; [the guide](guide.md) shows where.",
        ),
        "",
    ]


def _lower(one: Range | None, other: Range | None) -> str:
    """Say how much lower one figure is than another, with the range of their intervals."""
    if one is None or other is None:
        return "undetermined"
    least, most = 1 - one.high / other.low, 1 - one.low / other.high
    return f"{1 - one.value / other.value:.0%} lower ({least:.0%} to {most:.0%})"


def _cheapest(one: Range | None, other: Range | None, name: str, rival: str) -> str:
    """Return the name of the lower figure; `close` in front of it if the intervals overlap."""
    if one is None or other is None:
        return "undetermined"
    lower, higher = (one, other) if one.value <= other.value else (other, one)
    best = name if lower is one else rival
    return f"{best}, close" if lower.high >= higher.low else best


def page(day: date) -> str:
    """Return the whole page."""
    head = [
        "# The articles' tables, computed again",
        "",
        text(
            f"Generated on {day} by `python tools/build_articles.py`, from this catalog: prices with their sellers and",
            "dates, predictions with P10-P90. Articles are cited by their titles; their figures are claims, which",
            "`penstock audit --ledger` judges one by one.",
        ),
        "",
    ]
    parts = [*recommendations(), *capacity_by_count(), *cost_per_mtok(), *memory_per_dollar()]
    return "\n".join([*head, *parts]).rstrip("\n") + "\n"


def main() -> int:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--date", type=date.fromisoformat, default=datetime.now(tz=UTC).date())
    PAGE.write_text(page(parser.parse_args().date), encoding="utf-8")
    print(f"wrote {PAGE.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
