"""Claims about the record: facts, releases, dates, changes over time, and sums of stated figures."""

from dataclasses import dataclass
from datetime import date

from penstock.audit.claims.amount import Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class FactStatement:
    """A claim that something holds, has a name or was reported: `mi300x wave32 yes`, `fnuz stands for ...`."""

    subject: str
    about: str
    says: bool | str | Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedSpan:
    """A span of days: one day, or a month, quarter or year."""

    first: date
    last: date
    written: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DateStatement:
    """A claim that something happened or will happen at a time."""

    subject: str
    event: str
    when: ClaimedSpan


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsStatement:
    """A claim that a checkpoint runs correctly, or does not, on given devices with an engine release."""

    model: str
    accelerator: str
    devices: int = 1
    engine: str = "vllm"
    version: str | None = None
    runs: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class MentionStatement:
    """A mention of a product as existing; the text cannot be older than the product."""

    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeStatement:
    """A claim that a stack became faster by a factor between two dates on the same work."""

    accelerator: str
    amount: Amount
    engine: str | None = None
    model: str | None = None
    since: date | None = None
    until: date | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowsStatement:
    """A figure that a text computes from other stated figures."""

    inputs: tuple[tuple[str, float], ...]
    formula: str
    amount: Amount
    at_most: bool = False
    """Whether the inputs only give an upper bound of the figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UncheckableStatement:
    """A figure that cannot be checked; `needs` names the missing evidence."""

    amount: Amount
    needs: str
