"""Fits a line through the starts or loads that were measured on one host."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLoads:
    """Seconds before bytes move, and seconds per byte of weights, of one host."""

    fixed_s: float
    s_per_byte: float

    def seconds(self, weight_bytes: float) -> float:
        """Return the duration for weights of a size."""
        return self.fixed_s + weight_bytes * self.s_per_byte


def host_loads(measured: Sequence[tuple[float, float]]) -> HostLoads:
    """Return the line through measured bytes and seconds with the least relative errors.

    Two sizes are needed: one tells a slow process from slow bytes as little as one equation gives two unknowns. A
    slope or an intercept below 0 is set to 0.
    """
    if len({size for size, _ in measured}) < 2 or any(size <= 0 or seconds <= 0 for size, seconds in measured):
        raise ValueError("one line needs loads of two sizes, above 0 bytes and 0 seconds")
    ones = sum(1 / s**2 for _, s in measured)
    sizes, squares = sum(size / s**2 for size, s in measured), sum((size / s) ** 2 for size, s in measured)
    times, mixed = sum(1 / s for _, s in measured), sum(size / s for size, s in measured)
    spread = ones * squares - sizes**2
    slope, fixed = (ones * mixed - sizes * times) / spread, (squares * times - sizes * mixed) / spread
    if slope < 0:
        return HostLoads(fixed_s=times / ones, s_per_byte=0.0)
    return (
        HostLoads(fixed_s=fixed, s_per_byte=slope) if fixed >= 0 else HostLoads(fixed_s=0.0, s_per_byte=mixed / squares)
    )
