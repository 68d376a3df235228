"""What is said to be on record? Facts and releases, dates, changes over time, and sums of what is stated."""

from dataclasses import dataclass
from datetime import date

from penstock.audit.claims.amount import Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class FactStatement:
    """Something holds, is called so or has been reported: `mi300x wave32 yes`, `fnuz stands for ...`."""

    subject: str
    about: str
    says: bool | str | Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedSpan:
    """A day, or the first and the last day of a month, a quarter or a year."""

    first: date
    last: date
    written: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DateStatement:
    """Something happened, or will happen, then."""

    subject: str
    event: str
    when: ClaimedSpan


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsStatement:
    """A checkpoint runs, and answers rightly, on some devices with a release of an engine; or it does not."""

    model: str
    part: str
    devices: int = 1
    engine: str = "vllm"
    version: str | None = None
    runs: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class MentionStatement:
    """A text speaks of a product as there; it cannot be older than the product."""

    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeStatement:
    """A stack became so many times faster between two days on the same work."""

    part: str
    amount: Amount
    engine: str | None = None
    model: str | None = None
    since: date | None = None
    until: date | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowsStatement:
    """A figure that a text computes from others it states."""

    inputs: tuple[tuple[str, float], ...]
    formula: str
    amount: Amount
    at_most: bool = False
    """Whether the inputs only bound the figure: what they give is the most it can be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UncheckableStatement:
    """A figure nothing here can check; `needs` says what would."""

    amount: Amount
    needs: str
