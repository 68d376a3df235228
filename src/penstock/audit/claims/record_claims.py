"""Claims that records can decide: facts, releases, dates, changes over time, and computed figures."""

from dataclasses import dataclass
from datetime import date

from penstock.audit.claims.amount import Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class FactStatement:
    """A claim about a fact, a name or a reported result, such as `mi300x wave32 yes` or `fnuz stands for ...`."""

    subject: str
    about: str
    says: bool | str | Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedSpan:
    """The span of days that a claim means: one day, a month, a quarter or a year."""

    first: date
    last: date
    written: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DateStatement:
    """A claim that an event happened or will happen at a time."""

    subject: str
    event: str
    when: ClaimedSpan


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsStatement:
    """A claim that a checkpoint runs correctly, or does not, on the given devices and engine release."""

    model: str
    accelerator: str
    devices: int = 1
    engine: str = "vllm"
    version: str | None = None
    runs: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class MentionStatement:
    """A claim that mentions a product as if the product already exists. The text cannot be older than the product."""

    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeStatement:
    """A claim that a software stack became faster by a factor between two dates, measured on one workload."""

    accelerator: str
    amount: Amount
    engine: str | None = None
    model: str | None = None
    since: date | None = None
    until: date | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowsStatement:
    """A claim about a figure that the text computes from other stated figures."""

    inputs: tuple[tuple[str, float], ...]
    formula: str
    amount: Amount
    at_most: bool = False
    """Whether the inputs give only an upper bound of the figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UncheckableStatement:
    """A claim about a figure that cannot be checked. `needs` names the missing evidence."""

    amount: Amount
    needs: str
