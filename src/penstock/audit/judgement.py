"""Judgements: verdict, reason, reproducible arithmetic, and the condition under which the claim would be true."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """Verdict on a claim."""

    IMPOSSIBLE = "impossible"
    """Breaks a bound of capacity, bandwidth or arithmetic in every reading."""
    CONTRADICTED = "contradicted"
    """Contradicted by sourced facts or dates, or by its own stated inputs."""
    IMPLAUSIBLE = "implausible"
    """Possible, but far from all evidence."""
    PLAUSIBLE = "plausible"
    CONFIRMED = "confirmed"
    UNDETERMINED = "undetermined"
    """Cannot be decided; the reason names the missing evidence."""

    @property
    def damning(self) -> bool:
        """Whether `audit` exits 1: a buyer should stop."""
        return self in {Verdict.IMPOSSIBLE, Verdict.CONTRADICTED}

    @property
    def caught(self) -> bool:
        """Whether the verdict says that something is wrong."""
        return self.damning or self is Verdict.IMPLAUSIBLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Working:
    """One line of arithmetic: an expression of plain numbers, its result, and the meaning of the result."""

    expression: str
    """An expression such as `192 / 80`, or a comparison such as `2024-10 > 2023-10`."""
    result: float | bool
    what: str

    def __str__(self) -> str:
        if isinstance(self.result, bool):
            return f"{self.expression}: {'yes' if self.result else 'no'} ({self.what})"
        return f"{self.expression} = {figure(self.result)} ({self.what})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cited:
    """A consulted source."""

    title: str
    url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The result of checking one statement."""

    verdict: Verdict
    reason: str
    workings: tuple[Working, ...] = ()
    sources: tuple[Cited, ...] = ()
    true_if: str | None = None
    today: Verdict | None = None
    """Today's verdict, if it differs from the verdict on the day of the claim."""


def figure(value: float) -> str:
    """Format a number with four significant digits, and at least its whole part."""
    if value == int(value) and abs(value) < 1e15:  # beyond, digits are noise
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{float(f'{value:.4g}'):,g}"


def plainly(value: float) -> str:
    """Format a number for an expression, with six significant digits."""
    return f"{int(value)}" if value == int(value) and abs(value) < 1e15 else f"{value:.6g}"


def working_line(expression: str, result: float | bool, what: str) -> Working:  # noqa: FBT001 - a result may be yes or no
    """Create a line of arithmetic."""
    return Working(expression=expression, result=result, what=what)
