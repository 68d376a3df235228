"""What a line of text claims, and what the audit says about it."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple


class Verdict(StrEnum):
    """Verdict on a claim, most serious first."""

    IMPOSSIBLE = "impossible"
    """It breaks a bound of capacity, bandwidth or arithmetic in every reading."""
    CONTRADICTED = "contradicted"
    """A data sheet, a config or its own inputs say otherwise."""
    IMPLAUSIBLE = "implausible"
    """Possible, and outside of all that was published."""
    UNDETERMINED = "undetermined"
    """Read, but nothing here can decide it."""
    NOT_READ = "not read"
    PLAUSIBLE = "plausible"
    CONFIRMED = "confirmed"

    @property
    def negative(self) -> bool:
        """Whether the verdict speaks against the claim."""
        return self in {Verdict.IMPOSSIBLE, Verdict.CONTRADICTED, Verdict.IMPLAUSIBLE}

    @property
    def judged(self) -> bool:
        """Whether the verdict speaks for or against the claim."""
        return self not in {Verdict.UNDETERMINED, Verdict.NOT_READ}


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """A claimed figure in base units (bytes, seconds, dollars, tokens); `low` and `high` differ for a range."""

    low: float
    high: float
    unit: str
    written: str
    slack_fraction: float = 0.0
    """Largest relative error that rounding or a word such as `about` allows."""
    at_least: bool = False
    at_most: bool = False

    @property
    def middle(self) -> float:
        """Middle of the range."""
        return (self.low + self.high) / 2

    def overlaps(self, low: float, high: float, slack: float | None = None) -> bool:
        """Return whether a value between `low` and `high` is the claimed one, within the slack."""
        slack = self.slack_fraction if slack is None else slack
        first = 0.0 if self.at_most else self.low * (1 - slack)
        last = float("inf") if self.at_least else self.high * (1 + slack)
        return low <= last and high >= first

    def meets(self, value: float, slack: float | None = None) -> bool:
        """Return whether the value is the claimed one."""
        return self.overlaps(value, value, slack)

    def nearly(self, value: float) -> bool:
        """Return whether a value is as near as two sources of one figure are."""
        return self.overlaps(value, value, max(0.05, 1.5 * self.slack_fraction))

    def scaled(self, by: float) -> "Amount":
        """Return the figure times a factor."""
        return replace(self, low=self.low * by, high=self.high * by)

    def inverse(self) -> "Amount":
        """Return 1 over the figure."""
        return replace(self, low=1 / self.high, high=1 / self.low, at_least=self.at_most, at_most=self.at_least)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a claim says about devices, model and load. None and "" mean that it does not say."""

    accelerator: str | None = None
    variants: tuple[str, ...] = ()
    """Other accelerators that the same bare name may mean."""
    devices: int = 1
    counted: bool = False
    """Whether the claim states the number of devices."""
    model: str | None = None
    precision: str | None = None
    engine: str | None = None
    drafted: bool | None = None
    disaggregated: bool = False
    concurrency: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None

    @property
    def says_load(self) -> bool:
        """Whether users or lengths are stated."""
        return bool(self.concurrency or self.input_tokens or self.output_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One claimed figure, or that a model fits, with the words that say it."""

    says: str
    line: int
    kind: str
    """One of spec, ratio, fits, weights, left, cache, rate, tpot, ttft, price, discount, cost, follows, none."""
    setup: Setup = Setup()
    amount: Amount | None = None
    over: Setup | None = None
    """The other side of a ratio."""
    quantity: str = ""
    """What is compared or specified: memory, bandwidth, flops, tdp, link, compute_units, rate, per_dollar, price."""
    basis: str = ""
    """`dense`, `sparse`, `output`, `total`, `rent`, `purchase`, a kind of price, or that the claim denies a fit."""
    scope: str = "device"
    """device, node or rack."""
    provider: str = ""
    year: int | None = None
    usd_per_hour: float | None = None
    """Price of all devices in the same row of a tender, from which a cost must follow."""
    tokens_per_s: float | None = None
    why: str = ""
    """Why the words were not read."""


class Judgement(NamedTuple):
    """The verdict on one claim, its reason and its arithmetic."""

    verdict: Verdict
    reason: str
    arithmetic: tuple[str, ...] = ()
    true_if: str | None = None
    sources: tuple[tuple[str, str | None], ...] = ()
    """Title and address of each source."""


class Audited(NamedTuple):
    """A claim and its judgement."""

    claim: Claim
    judgement: Judgement


def figure(value: float) -> str:
    """Format a number with four significant digits."""
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{float(f'{value:.4g}'):,g}"
