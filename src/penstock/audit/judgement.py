"""Judgements.

Each judgement has a verdict, a reason, reproducible arithmetic, and the condition under which the claim would be true.
"""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """Verdict on a claim."""

    IMPOSSIBLE = "impossible"
    """The claim breaks a bound of capacity, bandwidth or arithmetic in every possible interpretation."""
    CONTRADICTED = "contradicted"
    """The claim is contradicted by sourced facts or dates, or by the inputs that it states."""
    IMPLAUSIBLE = "implausible"
    """The claim is possible, but far from all evidence."""
    PLAUSIBLE = "plausible"
    CONFIRMED = "confirmed"
    UNDETERMINED = "undetermined"
    """The claim cannot be decided. The reason names the missing evidence."""

    @property
    def damning(self) -> bool:
        """Whether the verdict makes `penstock audit` exit with status 1, which is meant to stop a purchase."""
        return self in {Verdict.IMPOSSIBLE, Verdict.CONTRADICTED}

    @property
    def caught(self) -> bool:
        """Whether the verdict says that the claim is impossible, contradicted or implausible."""
        return self.damning or self is Verdict.IMPLAUSIBLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Working:
    """One line of arithmetic.

    The line has an expression of plain numbers, its result, and the meaning of the result.
    """

    expression: str
    """An expression such as `192 / 80`, or a comparison such as `2024-10 > 2023-10`."""
    result: float | bool
    what: str

    def __str__(self) -> str:
        if isinstance(self.result, bool):
            return f"{self.expression} is {'true' if self.result else 'false'} ({self.what})"
        return f"{self.expression} = {figure(self.result)} ({self.what})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cited:
    """A source that a check consulted."""

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
    """The verdict as of today, if it is not the same as the verdict on the day of the claim."""


def figure(value: float) -> str:
    """Format a number with four significant digits. Digits before the decimal point are always kept."""
    if value == int(value) and abs(value) < 1e15:  # larger values have no exact digits
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{float(f'{value:.4g}'):,g}"


def plainly(value: float) -> str:
    """Format a number for an expression, with six significant digits."""
    return f"{int(value)}" if value == int(value) and abs(value) < 1e15 else f"{value:.6g}"


def working_line(expression: str, result: float | bool, what: str) -> Working:  # noqa: FBT001 - a result may be yes or no
    """Create a line of arithmetic."""
    return Working(expression=expression, result=result, what=what)
