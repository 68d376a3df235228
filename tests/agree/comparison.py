"""One question asked through two doors, and how far their answers are apart."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Comparison:
    """Two answers to one question. Whether they disagree depends on the limit of the kind in `kinds.toml`."""

    kind: str
    gap: float
    """Distance of the answers in the unit of the kind; 0 if they are equal."""
    told: str
    """Both answers in one line."""
    replay: tuple[str, ...]
    """Command lines that give the answers."""


def apart(one: float, other: float) -> float:
    """Return by which fraction the larger of two positive figures exceeds the smaller."""
    low, high = sorted((one, other))
    if low <= 0:
        return 0.0 if high <= 0 else 99.0
    return min(99.0, high / low - 1)
