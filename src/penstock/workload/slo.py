"""Defines SLOs: limits on a request's times, and the share of requests that must meet them."""

import re
from dataclasses import dataclass
from math import isfinite
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from penstock.errors import UsageError
from penstock.reading.scalars import Number

DEFAULT_ATTAINMENT_FRACTION = 0.95
"""Default of `attain`, the share of requests that must meet the SLO; printed wherever the SLO is printed."""

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(us|ms|s|min|h)")
_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,9})?)%")
_LIMITS = {"ttft": "ttft_s", "tpot": "tpot_s", "e2e": "e2e_s"}
_EXAMPLE = "write an SLO as ttft=1s,tpot=50ms,attain=95%"
_MAX_TEXT = 200


Overload = Literal["serve", "refuse", "hold"]
"""What a router may do with a request while the fleet is overloaded.

`serve` sends it in any case. `refuse` rejects it if serving it costs more SLOs than it keeps. `hold` keeps it at the
gateway until this is no longer so, for at most half of its limit for the first token, and then rejects it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """Time limits for a request, and the fraction of requests that must meet all of these limits."""

    ttft_s: Number | None = None
    """Limit on the time to first token, in seconds."""
    tpot_s: Number | None = None
    """Limit on the mean time per output token after the first, in seconds."""
    e2e_s: Number | None = None
    """Limit on the time of the whole request, in seconds."""
    attainment_fraction: Number = DEFAULT_ATTAINMENT_FRACTION
    """Fraction of requests that must meet the limits."""

    def __post_init__(self) -> None:
        limits = [limit for limit in (self.ttft_s, self.tpot_s, self.e2e_s) if limit is not None]
        if not limits:
            raise UsageError(f"an SLO must limit at least one of ttft, tpot and e2e; {_EXAMPLE}")
        if not all(isfinite(limit) and limit > 0 for limit in limits):
            raise UsageError(f"a limit of an SLO must be above 0; {_EXAMPLE}")
        if not 0 < self.attainment_fraction <= 1:
            raise UsageError(f"attain must be above 0% and at most 100%; {_EXAMPLE}")

    def met(
        self, *, ttft_s: NDArray[np.float64], tpot_s: NDArray[np.float64], e2e_s: NDArray[np.float64]
    ) -> NDArray[np.bool_]:
        """Return, for each request, whether every limit is met.

        A request with one output token has no time per token; its value is NaN, which meets any limit.
        """
        kept = np.ones(len(ttft_s), dtype=bool)
        for seconds, limit in ((ttft_s, self.ttft_s), (tpot_s, self.tpot_s), (e2e_s, self.e2e_s)):
            if limit is not None:
                kept &= ~(seconds > limit)
        return kept

    def __str__(self) -> str:
        limits = (("ttft", self.ttft_s), ("tpot", self.tpot_s), ("e2e", self.e2e_s))
        parts = [f"{name}={_duration(limit)}" for name, limit in limits if limit is not None]
        return ",".join([*parts, f"attain={self.attainment_fraction * 100:g}%"])


@dataclass(frozen=True, slots=True, kw_only=True)
class SloClass:
    """A kind of request in a workload, with its share and its SLO."""

    name: str
    share_fraction: float
    slo: Slo | None = None
    """SLO of the class; None if it has no SLO."""
    overload: Overload = "serve"
    """What a router may do with requests of the class while the fleet is overloaded."""

    def __post_init__(self) -> None:
        if not 0 < self.share_fraction <= 1:
            raise UsageError(
                f"class '{self.name}' has a share of {self.share_fraction:g}; a share must be above 0 and at most 1"
            )


def parse_slo(text: str) -> Slo:
    """Parse an SLO such as `ttft=1s,tpot=50ms,e2e=2min,attain=95%`."""
    if len(text) > _MAX_TEXT:
        raise UsageError(f"an SLO of {len(text)} characters is too long; {_EXAMPLE}")
    given: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = (piece.strip().lower() for piece in part.partition("="))
        if name in given:
            raise UsageError(f"'{text}' limits {name} twice; {_EXAMPLE}")
        if name == "attain":
            given[name] = _parse_percent(value)
        elif name in _LIMITS:
            given[name] = parse_duration(value)
        else:
            raise UsageError(f"'{part.strip()}' is not a limit of an SLO: ttft, tpot, e2e or attain; {_EXAMPLE}")
    return Slo(
        **{field: given[name] for name, field in _LIMITS.items() if name in given},
        attainment_fraction=given.get("attain", DEFAULT_ATTAINMENT_FRACTION),
    )


def parse_duration(text: str) -> float:
    """Parse a duration such as 250us, 50ms, 1.5s, 2min or 1h, and return seconds."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise UsageError(f"'{text}' is not a time; write 50ms, 1.5s, 2min or 1h")
    return float(match[1]) * _SECONDS[match[2]]


def _parse_percent(text: str) -> float:
    match = _PERCENT.fullmatch(text)
    if match is None:
        raise UsageError(f"'{text}' is not a percentage; write 95% or 99.9%")
    return float(match[1]) / 100


def _duration(seconds: float) -> str:
    for unit in ("min", "s", "ms"):
        if seconds >= _SECONDS[unit] and (unit != "min" or seconds % _SECONDS[unit] == 0):
            return f"{seconds / _SECONDS[unit]:g}{unit}"
    return f"{seconds / _SECONDS['us']:g}us"
