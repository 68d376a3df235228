"""Parses claimed figures as written, including their unit, their rounding and words such as `about`."""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from penstock.errors import UsageError
from penstock.units import GB, GIB, TERA

_MAX_CHARACTERS: Final = 60
_NUMBER: Final = r"(\d{1,3}(?:\.\d{3}){1,5},\d{1,9}|\d[\d_,]{0,15}(?:\.\d{1,9})?)"
_SCALE: Final = r"((?:[kmb](?![a-z/]))?)"
_AMOUNT: Final = re.compile(
    rf"(?P<words>(?:~|≈|<=?|>=?|≤|≥|[a-z]+\s)*)\s*(?P<usd>\$?)\s*{_NUMBER}{_SCALE}"
    rf"(?:\s*(?:-|\u2013|to|\.\.)\s*\$?\s*{_NUMBER}{_SCALE})?\s*(?P<unit>[^\d\s][^\s]*(?:\s[^\d\s]\S*)*)?",
    re.IGNORECASE,
)
_SCALES: Final = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9}
_ABOUT: Final = {"~", "≈", "about", "roughly", "approximately", "around", "nearly", "some", "almost"}
_LEAST: Final = {">", ">=", "≥", "over", "above", "more", "least"}
_MOST: Final = {"<", "<=", "≤", "under", "below", "less", "most", "up"}
_FILLERS: Final = {"at", "than", "to"}
_LOOSE: Final = 0.10
"""Relative error allowed for a figure called `about`."""
_TIGHT: Final = (0.02, 0.05)
"""Minimum and maximum of the allowed relative error.

Between these two, the allowed error is half a unit of the last digit.
"""
_STRICT: Final = 0.005
"""Relative error allowed beyond the bound of a figure with `over` or `under`."""
_THOUSANDS: Final = re.compile(r"[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?")

UNITS: Final[Mapping[str, tuple[str, float]]] = {
    "gb": ("bytes", GB),
    "gib": ("bytes", GIB),
    "tb": ("bytes", TERA),
    "mb": ("bytes", 1e6),
    "kb": ("bytes", 1024.0),
    "kib": ("bytes", 1024.0),
    "gb/s": ("bytes/s", GB),
    "tb/s": ("bytes/s", TERA),
    "gb/sec": ("bytes/s", GB),
    "tb/sec": ("bytes/s", TERA),
    "gflops": ("flops/s", 1e9),
    "tflops": ("flops/s", TERA),
    "teraflops": ("flops/s", TERA),
    "tops": ("flops/s", TERA),
    "tflop/s": ("flops/s", TERA),
    "pflop/s": ("flops/s", 1e15),
    "pflops": ("flops/s", 1e15),
    "petaflops": ("flops/s", 1e15),
    "eflops": ("flops/s", 1e18),
    "exaflops": ("flops/s", 1e18),
    "w": ("watts", 1.0),
    "watts": ("watts", 1.0),
    "kw": ("watts", 1e3),
    "tok/s": ("tokens/s", 1.0),
    "tokens/s": ("tokens/s", 1.0),
    "tps": ("tokens/s", 1.0),
    "t/s": ("tokens/s", 1.0),
    "tokens per second": ("tokens/s", 1.0),
    "tokens/sec": ("tokens/s", 1.0),
    "tok/sec": ("tokens/s", 1.0),
    "tok/s/gpu": ("tokens/s/device", 1.0),
    "tokens/s/gpu": ("tokens/s/device", 1.0),
    "tok/s per gpu": ("tokens/s/device", 1.0),
    "tok/s/user": ("tokens/s/user", 1.0),
    "ms": ("s", 1e-3),
    "s": ("s", 1.0),
    "x": ("times", 1.0),
    "\u00d7": ("times", 1.0),
    "times": ("times", 1.0),
    "%": ("share", 0.01),
    "percent": ("share", 0.01),
    "usd": ("usd", 1.0),
    "$": ("usd", 1.0),
    "/h": ("usd/h", 1.0),
    "/hr": ("usd/h", 1.0),
    "/hour": ("usd/h", 1.0),
    "per hour": ("usd/h", 1.0),
    "/mtok": ("usd/Mtok", 1.0),
    "/m": ("usd/Mtok", 1.0),
    "per mtok": ("usd/Mtok", 1.0),
    "per million tokens": ("usd/Mtok", 1.0),
    "/million tokens": ("usd/Mtok", 1.0),
    "requests": ("count", 1.0),
    "concurrent requests": ("count", 1.0),
    "concurrent users": ("count", 1.0),
    "users": ("count", 1.0),
    "devices": ("count", 1.0),
    "cards": ("count", 1.0),
    "gpus": ("count", 1.0),
    "units": ("count", 1.0),
    "lanes": ("count", 1.0),
    "tokens": ("count", 1.0),
    "params": ("count", 1.0),
    "": ("number", 1.0),
}
"""Measure of each written unit, and its size in the base unit of that measure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """A claimed figure in base units (bytes, seconds, shares). `low` and `high` are equal for a single figure."""

    low: float
    high: float
    measure: str
    written: str
    rounding: float
    """Rounding error of the claimed figure: half a unit of its last written digit, in the base unit."""
    about: bool = False
    at_least: bool = False
    at_most: bool = False

    @property
    def middle(self) -> float:
        """The figure, or the midpoint of a range."""
        return (self.low + self.high) / 2

    @property
    def noun_phrase(self) -> str:
        """Noun phrase that names the claimed figure in a sentence."""
        return f"the claim{' of' if self.at_least or self.at_most else 'ed'} {self.written}"

    @property
    def slack(self) -> float:
        """Maximum distance between the figure and a value that matches the figure."""
        tight = min(max(self.rounding, _TIGHT[0] * self.middle), _TIGHT[1] * self.middle)
        return max(tight, _LOOSE * self.middle) if self.about else tight

    def meets(self, value: float) -> bool:
        """Return whether a value matches the claim within the claim's rounding.

        With `over` or `under`, a value may miss the stated bound by 0.5%.
        """
        bounded = (self.at_least or self.at_most) and not self.about
        return self._within(value, _STRICT * self.middle if bounded else self.slack)

    def nearly(self, value: float) -> bool:
        """Return whether a value is near the claim.

        The tolerance is at least 5%, because sources of one figure differ. With `about`, it is 15%.
        """
        return self._within(value, max(_TIGHT[1] * self.middle, 1.5 * self.slack))

    def closely(self, value: float) -> bool:
        """Return whether a value equals the figure within 2%, or within 10% with `about`.

        The claim's rounding and the words `over` and `under` are ignored.
        """
        slack = (_LOOSE if self.about else _TIGHT[0]) * self.middle
        return self.low - slack <= value <= self.high + slack

    def _within(self, value: float, slack: float) -> bool:
        low = float("-inf") if self.at_most else self.low - slack
        high = float("inf") if self.at_least else self.high + slack
        return low <= value <= high

    def overlaps(self, low: float, high: float) -> bool:
        """Return whether some value between `low` and `high` matches the claim."""
        return self.meets(min(max(low, self.low), high)) or self.meets(low) or self.meets(high)

    def off_by(self, value: float) -> str:
        """Return the distance between the figure and a value, in percent of that value."""
        return f"{abs(self.middle / value - 1):.0%}" if value else "all"

    def rest(self) -> "Amount":
        """Return the complement of a claimed share, which is 1 minus the share. For example, 30% less becomes 70%."""
        return replace(self, low=1 - self.high, high=1 - self.low, at_least=self.at_most, at_most=self.at_least)

    def scaled(self, by: float) -> "Amount":
        """Return the claimed figure multiplied by a factor, with its rounding."""
        return replace(self, low=self.low * by, high=self.high * by, rounding=self.rounding * by)


def parse_amount(text: str, *measures: str) -> Amount:
    """Parse an amount such as `3,958 TFLOPS`, `~15-20 tok/s`, `18 to 22%`, `>2.5x` or `$22,000`.

    If measures are given, the amount must be in a unit of one of these measures.
    """
    shown = " ".join(text.split())
    found = _AMOUNT.fullmatch(shown) if len(shown) <= _MAX_CHARACTERS else None
    if found is None:
        raise UsageError(f"'{shown[:40]}' is not an amount; write 192 GB, ~15-20 tok/s, 1.5x, 31% or $22,000")
    measure, size = _unit((found["unit"] or "").strip().lower(), usd=bool(found["usd"]), text=shown)
    if measures and measure not in measures:
        raise UsageError(
            f"'{shown}' is measured in {measure}, but another unit is needed here; write {_examples(measures)}"
        )
    words = set(re.findall(r"[a-z]+|[~≈≤≥]|[<>]=?", found["words"].lower()))
    unknown = words - _ABOUT - _LEAST - _MOST - _FILLERS
    if unknown:
        raise UsageError(
            f"'{shown}' has the unknown word '{min(unknown)}'; use `about`, `over` or `under`, or leave the word out"
        )
    ends = [_plain(found[number], found[number + 1]) for number in (3, 5) if found[number]]
    low, high = (ends[0], ends[-1])
    if low[0] > high[0] or low[0] < 0:
        raise UsageError(f"'{shown}' is not a range; write the smaller figure first, and no negative figures")
    return Amount(
        low=low[0] * size,
        high=high[0] * size,
        measure=measure,
        written=shown,
        rounding=max(low[1], high[1]) * size,
        about=bool(words & _ABOUT),
        at_least=bool(words & _LEAST),
        at_most=bool(words & _MOST),
    )


def exactly(value: float, measure: str = "number", written: str | None = None) -> Amount:
    """Return the amount of a computed value, which has no rounding error."""
    return Amount(low=value, high=value, measure=measure, written=written or f"{value:,.4g}", rounding=0.0)


def _plain(digits: str, scale: str) -> tuple[float, float]:
    """Return a figure and half a unit of its last digit.

    A comma that does not separate thousands is a decimal comma.
    """
    clean = digits.replace("_", "")
    if re.fullmatch(r"\d{1,3}(?:\.\d{3})+,\d+", clean):
        clean = clean.replace(".", "").replace(",", ".")
    elif "," in clean and not _THOUSANDS.fullmatch(clean):
        if clean.count(",") > 1 or "." in clean or not clean.rpartition(",")[2]:
            raise UsageError(f"'{digits}' has ambiguous commas; write 5,300 or 5.3")
        clean = clean.replace(",", ".")
    clean = clean.replace(",", "")
    times = _SCALES[scale.lower()]
    return float(clean) * times, 10.0 ** -len(clean.partition(".")[2]) / 2 * times


def _unit(written: str, *, usd: bool, text: str) -> tuple[str, float]:
    name = written.replace(" / ", "/").rstrip(".")
    if usd:
        name = name or "usd"
    if name in UNITS:
        return UNITS[name]
    near = difflib.get_close_matches(name, [unit for unit in UNITS if unit], n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else "known: GB, TB/s, TFLOPS, W, tok/s, ms, x, %, $, $ /h, $ /Mtok"
    raise UsageError(f"'{text}': '{written[:20]}' is not a unit; {hint}")


def _examples(measures: tuple[str, ...]) -> str:
    known = (
        next((unit for unit, (of, _) in UNITS.items() if of == measure and unit), "a number") for measure in measures
    )
    return " or ".join(known)
