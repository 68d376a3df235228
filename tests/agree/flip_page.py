"""Compares docs/flip with `predict` and with the plan that the page offers to copy. The formulas are the page's own."""

import json
import math
import random
import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from agree.comparison import Comparison, apart
from agree.doors import START, ask, ask_file
from agree.purchases import costs_of, dearer_by, usd_text
from agree.situations import SEED

PAGE: Final = Path(__file__).parents[2] / "docs" / "flip" / "index.html"
DEFAULTS: Final = ("llama-3.3-70b", (2048, 400), 30, ("h200_sxm", "mi355x"))
_MEDIAN: Final = 2
Curve = Mapping[str, Any]


@cache
def page() -> Mapping[str, Any]:
    """Return the data of the page."""
    found = re.search(
        r'<script type="application/json" id="data">(.*?)</script>', PAGE.read_text(encoding="utf-8"), re.DOTALL
    )
    data: Mapping[str, Any] = json.loads(found[1] if found else "{}")
    return data


def rate_at(curve: Curve, speed: float) -> float | None:
    """Return tokens per second and device at a speed per user, as the page interpolates."""
    points = sorted(curve["points"], key=lambda point: float(point[1]))
    if speed <= points[0][1]:
        return float(points[0][_MEDIAN])
    for low, high in pairwise(points):
        if low[1] <= speed <= high[1]:
            part = 0.0 if high[1] == low[1] else math.log(speed / low[1]) / math.log(high[1] / low[1])
            return math.exp((1 - part) * math.log(low[_MEDIAN]) + part * math.log(high[_MEDIAN]))
    return None


def best_rate(model: str, lengths: tuple[int, int], name: str, speed: float) -> float | None:
    """Return the highest rate per device of all replica sizes of the page."""
    curves = page()["curves"].get(f"{model}|{lengths[0]}|{lengths[1]}|{name}", [])
    rates = [rate for curve in curves if (rate := rate_at(curve, speed)) is not None]
    return max(rates, default=None)


def compare_page(number: int) -> list[Comparison]:
    """Compare the page's cheaper offer with its own plan. The first number is the page as it opens."""
    rng = random.Random(f"{SEED} flip {number}")
    model, lengths, speed, offers = DEFAULTS
    while number:
        model, lengths = rng.choice(list(page()["models"])), tuple(rng.choice(page()["lengths"]))
        offers = (rng.choice(("h100_sxm", "h200_sxm", "b200_sxm")), rng.choice(("mi300x", "mi325x", "mi355x")))
        speed = rng.choice((20, 30, 40))
        if all(best_rate(model, lengths, name, speed) for name in offers):
            break
    return list(_plans(model, lengths, speed, offers))


def _plans(model: str, lengths: tuple[int, int], speed: int, offers: tuple[str, str]) -> Iterator[Comparison]:
    prices = [page()["rents"][name] or 3 for name in offers]
    rates = [best_rate(model, lengths, name, speed) or math.nan for name in offers]
    costs = [price / rate for price, rate in zip(prices, rates, strict=True)]
    vendors = ("nvidia", "amd")
    cheaper = vendors[costs[1] < costs[0]]
    precision = page()["models"][model]
    work = {
        "name": "chat",
        "model": model,
        "slo": f"ttft=2s,tpot={round(1000 / speed)}ms,attain=95%",
        "users": 100,
        "lengths": [{"input": lengths[0], "output": lengths[1], "share": "100%"}],
    }
    if precision:
        work["weights"] = ["checkpoint" if precision == "bf16" else precision]
    told = ask_file(
        "plan",
        {
            "name": f"{offers[0]} or {offers[1]} for {model}",
            "start": START,
            "draws": 200,
            "horizon_years": 1,
            "workloads": [work],
            "accelerators": [
                {"id": name, "rent_usd_per_hour": price} for name, price in zip(offers, prices, strict=True)
            ],
            "acquire": ["rent"],
        },
    )
    planned = {label: usd for label, usd in costs_of(told).items() if label != "mix"}
    said = f"{model} {lengths[0]}/{lengths[1]} at {speed} tok/s: page {cheaper} by {apart(*costs):.0%}, "
    said += f"its plan {usd_text(planned) or told.refusal[:60] or 'no fleet'}"
    commands = (
        f"open docs/flip/index.html: {model}, {lengths[0]} / {lengths[1]}, {speed}, {', '.join(offers)}",
        told.command,
    )
    yield Comparison(
        "cheaper offer: flip page / its plan", dearer_by(planned, cheaper) if planned else 99.0, said, commands
    )


def compare_curves(number: int) -> list[Comparison]:
    """Compare a point of the page with `predict` of today."""
    rng = random.Random(f"{SEED} curve {number}")
    key = rng.choice(sorted(page()["curves"]))
    curve = rng.choice(page()["curves"][key])
    point = rng.choice(curve["points"])
    model, inputs, outputs, name = key.split("|")
    told = ask(
        "predict",
        model=model,
        on=f"{name}:{curve['devices']}",
        precision=page()["models"][model],
        concurrency=point[0],
        input_tokens=int(inputs),
        output_tokens=int(outputs),
    )
    rate = float(told.row["output_tokens_per_s"]) / curve["devices"] if told.fits else 0.0
    said = (
        f"{key} x{curve['devices']}, {point[0]} users: page {point[_MEDIAN]:,.0f} tok/s a device, predict {rate:,.0f}"
    )
    return [
        Comparison(
            "tokens/s: flip page / predict", apart(point[_MEDIAN], rate), said, ("docs/flip/index.html", told.command)
        )
    ]
