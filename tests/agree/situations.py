"""Draws the situations that are asked about. A situation depends on the seed and its number alone."""

import math
import random
from dataclasses import dataclass, replace
from typing import Any, Final

SEED: Final = 46
NVIDIA: Final = ("h100", "h200", "b200")
AMD: Final = ("mi300x", "mi325x", "mi355x")
PRICES: Final = {
    "h100": (1.9, 4.0),
    "h200": (2.2, 4.5),
    "b200": (4.0, 7.0),
    "mi300x": (1.6, 3.0),
    "mi325x": (1.9, 3.2),
    "mi355x": (2.6, 4.2),
}
"""Dollars per device and hour that a user may be quoted."""
SMALL, LARGE, HUGE = (20.0, 300.0), (2.0, 50.0), (0.5, 12.0)
"""Peak requests per second of models that need one device, a few, or a node."""
MODELS: Final[tuple[tuple[str, tuple[str | None, ...], tuple[int, ...], tuple[float, float]], ...]] = (
    ("llama-3.1-8b", (None, "fp8"), (1,), SMALL),
    ("qwen3-14b", (None, "fp8"), (1, 2), SMALL),
    ("gpt-oss-20b", (None,), (1,), SMALL),
    ("qwen3-32b", (None, "fp8"), (1, 2), LARGE),
    ("llama-3.3-70b", (None, "fp8", "fp8"), (1, 2, 4), LARGE),
    ("llama-3.3-70b-fp8-dynamic", (None,), (1, 2), LARGE),
    ("qwen2.5-72b", (None, "fp8"), (1, 2, 4), LARGE),
    ("gpt-oss-120b", (None,), (1, 2), LARGE),
    ("mixtral-8x7b", (None,), (1, 2), LARGE),
    ("glm-4.5-air", (None, "fp8"), (2, 4), LARGE),
    ("qwen3-235b-a22b-fp8", (None,), (2, 4, 8), HUGE),
    ("minimax-m2.5", (None,), (2, 4, 8), HUGE),
    ("llama-3.1-405b", (None, "fp8"), (4, 8), HUGE),
    ("deepseek-r1", (None,), (4, 8), HUGE),
)
"""Models with the formats, the devices per replica and the rates they are asked about."""
LENGTHS: Final = ((1024, 1024), (2048, 400), (8192, 1024), (500, 200), (1500, 350), (12288, 500))
USERS: Final = (1, 2, 4, 8, 16, 32, 64, 64, 128, 200)


@dataclass(frozen=True)
class Situation:
    """A deployment and its load."""

    name: str
    model: str
    precision: str | None
    accelerator: str
    rival: str
    """An accelerator of the other vendor."""
    devices: int
    users: int
    input_tokens: int
    output_tokens: int
    rate: float
    """Peak requests per second."""
    slo: str
    prices: tuple[float, float] | None
    """Quotes for the accelerator and its rival by the hour; None if only the catalog has prices."""

    def setup(self, accelerator: str | None = None) -> dict[str, Any]:
        """Return the arguments of a door that name the deployment."""
        return {
            "model": self.model,
            "on": f"{accelerator or self.accelerator}:{self.devices}",
            "precision": self.precision,
        }

    def lengths(self) -> dict[str, Any]:
        """Return the arguments of a door that name the lengths."""
        return {"input_tokens": self.input_tokens, "output_tokens": self.output_tokens}


def drawn(kind: str, number: int) -> Situation:
    """Return situation `number` of a kind."""
    rng = random.Random(f"{SEED} {kind} {number}")
    model, formats, splits, (low, high) = MODELS[number % len(MODELS)]
    sides = [rng.choice(AMD), rng.choice(NVIDIA)]
    rng.shuffle(sides)
    if rng.random() < 0.5:
        lengths = rng.choice(LENGTHS)
    else:
        lengths = (round(_between(rng, 200, 16_000)), round(_between(rng, 50, 1500)))
    ttft_s = 1 + lengths[0] / 4000
    quotes = tuple(round(rng.uniform(*PRICES[name]), 2) for name in sides)
    return Situation(
        name=f"{kind} {number}",
        model=model,
        precision=rng.choice(formats),
        accelerator=sides[0],
        rival=sides[1],
        devices=rng.choice(splits),
        users=rng.choice(USERS),
        input_tokens=lengths[0],
        output_tokens=lengths[1],
        rate=float(f"{_between(rng, low, high):.2g}"),
        slo=f"ttft={ttft_s:.1f}s,tpot={rng.choice((30, 50, 80))}ms,attain=95%",
        prices=(quotes[0], quotes[1]) if number % 2 == 0 else None,
    )


def _between(rng: random.Random, low: float, high: float) -> float:
    return math.exp(rng.uniform(math.log(low), math.log(high)))


LLAMA: Final = Situation(
    name="README: Llama 70B FP8 on H200 and MI325X, 64 users",
    model="llama-3.3-70b",
    precision="fp8",
    accelerator="mi325x",
    rival="h200",
    devices=1,
    users=64,
    input_tokens=2048,
    output_tokens=400,
    rate=8.0,
    slo="ttft=2s,tpot=50ms,attain=95%",
    prices=None,
)
NAMED: Final = (
    LLAMA,
    replace(LLAMA, name="README on H200", accelerator="h200", rival="mi325x"),
    replace(LLAMA, name="70B in BF16 on one H200", precision=None, accelerator="h200"),
    replace(
        LLAMA,
        name="R1 on MI355X from 63 to 65 users",
        model="deepseek-r1",
        precision=None,
        accelerator="mi355x",
        rival="b200",
        devices=8,
        input_tokens=1024,
        output_tokens=1024,
    ),
    replace(
        LLAMA,
        name="Llama 70B FP8, 8k/1k, 32 users",
        accelerator="h200",
        users=32,
        input_tokens=8192,
        output_tokens=1024,
    ),
)
"""Situations in which users found doors that disagree."""
