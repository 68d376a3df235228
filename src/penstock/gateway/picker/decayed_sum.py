"""Defines exponentially decayed sums and means. Times are multiples of the half-life, and any clock may be used."""


class DecayedSum:
    """A sum that decays to half its value in each half-life.

    `now` is the current time as a multiple of the half-life.
    """

    def __init__(self) -> None:
        self._value = self._since = 0.0

    def add(self, amount: float, now: float) -> None:
        """Add an amount to the sum at the time `now`."""
        self._value, self._since = self.at(now) + amount, now

    def at(self, now: float) -> float:
        """Return the decayed sum at the time `now`."""
        return float(self._value * 0.5 ** max(0.0, now - self._since))


class DecayedMean:
    """Exponentially decayed mean with a half-life of `half_life` samples."""

    def __init__(self, half_life: float) -> None:
        self._half_life, self._sum, self._count = half_life, DecayedSum(), DecayedSum()
        self._now = self._elsewhere = 0.0

    def add(self, amount: float, count: float, elsewhere: float) -> float:
        """Add `count` samples whose sum is `amount`, and return the new mean.

        Two clocks count in half-lives: one advances with the samples, the other even without samples. `elsewhere` is
        the time on the second clock. The mean decays by the larger of the two clocks' advances since the last call.
        """
        self._now += max(count / self._half_life, elsewhere - self._elsewhere)
        self._elsewhere = elsewhere
        self._sum.add(amount, self._now)
        self._count.add(count, self._now)
        return self._sum.at(self._now) / self._count.at(self._now)
