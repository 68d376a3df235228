"""What came out? A verdict, the reason, arithmetic a reader can redo, and what would make the claim true."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """What a claim is worth."""

    IMPOSSIBLE = "impossible"
    """Breaks a bound of capacity, bandwidth or arithmetic however it is read."""
    CONTRADICTED = "contradicted"
    """By sourced facts or dates, or by its own stated inputs."""
    IMPLAUSIBLE = "implausible"
    """Possible, far from all evidence."""
    PLAUSIBLE = "plausible"
    CONFIRMED = "confirmed"
    UNDETERMINED = "undetermined"
    """Nothing here can tell; the reason says what is missing."""

    @property
    def damning(self) -> bool:
        """Whether a buyer should stop: `audit` exits 1."""
        return self in {Verdict.IMPOSSIBLE, Verdict.CONTRADICTED}

    @property
    def caught(self) -> bool:
        """Whether it says that something is wrong."""
        return self.damning or self is Verdict.IMPLAUSIBLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Working:
    """One line of arithmetic: an expression of plain numbers, what it comes to, and what that is."""

    expression: str
    """`192 / 80`, or a comparison: `2024-10 > 2023-10`."""
    result: float | bool
    what: str

    def __str__(self) -> str:
        if isinstance(self.result, bool):
            return f"{self.expression}: {'yes' if self.result else 'no'} ({self.what})"
        return f"{self.expression} = {figure(self.result)} ({self.what})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cited:
    """What was consulted: who says it and where."""

    title: str
    url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What an auditor says of one statement."""

    verdict: Verdict
    reason: str
    workings: tuple[Working, ...] = ()
    sources: tuple[Cited, ...] = ()
    true_if: str | None = None
    today: Verdict | None = None
    """The verdict of today, where it is not that of the day of the claim."""


def figure(value: float) -> str:
    """Write a number as a reader would, to four digits and no fewer than its whole part has."""
    if value == int(value) and abs(value) < 1e15:  # noqa: PLR2004 - beyond, digits are noise
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{float(f'{value:.4g}'):,g}"  # noqa: PLR2004 - four digits


def plainly(value: float) -> str:
    """Write a number for an expression, exactly enough to redo it."""
    return f"{int(value)}" if value == int(value) and abs(value) < 1e15 else f"{value:.6g}"  # noqa: PLR2004 - as above


def worked(expression: str, result: float | bool, what: str) -> Working:  # noqa: FBT001 - a result may be yes or no
    """Write a line of arithmetic."""
    return Working(expression=expression, result=result, what=what)
