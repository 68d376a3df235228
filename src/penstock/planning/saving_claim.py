"""Does a published saving follow from its own inputs? Every reasonable reading of them, computed."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from penstock.planning.plan_file import SavingClaim

_ROUNDING: Final = 0.005
"""A claim in whole percent is reproduced by anything that rounds to it."""
_VARIED: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One way to understand the stated inputs, and what they then give."""

    name: str
    throughput: str
    saving_fraction: float
    with_engineers_fraction: float
    varied_fractions: tuple[float, float]
    """The saving when the share of hardware is a fifth smaller or larger."""
    reproduces_claim: bool
    reproduces_claim_with_engineers: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimCheck:
    """What the inputs give and what they would have to be."""

    claim: SavingClaim
    readings: tuple[Reading, ...]
    engineers_for_the_drop: float
    """Engineers that would take the first figure down to the second, in the reading nearest the claim."""
    throughput_for_the_claim: float
    """Tokens of the cheaper part over the dearer one that would give the first figure, in the first reading."""

    @property
    def verdicts(self) -> tuple[str, ...]:
        """One sentence per figure."""
        claim = self.claim
        first = [reading for reading in self.readings if reading.reproduces_claim]
        second = [reading for reading in self.readings if reading.reproduces_claim_with_engineers]
        both = [reading for reading in first if reading in second]
        stated, given = claim.engineers, claim.claimed_with_engineers_fraction
        return (
            _sentence(claim.claimed_fraction, [(r.saving_fraction, r) for r in self.readings], first),
            _sentence(given, [(r.with_engineers_fraction, r) for r in self.readings], second),
            f"{'A' if both else 'No'} reading gives both. " + self._drop(stated, given),
        )

    def _drop(self, stated: float, given: float) -> str:
        return (
            f"Going from {self.claim.claimed_fraction:.0%} to {given:.0%} takes {self.engineers_for_the_drop:.1f} "
            f"engineers, not {stated:g}."
        )


def _sentence(claimed: float, given: list[tuple[float, Reading]], reproduced: list[Reading]) -> str:
    if reproduced:
        return f"{claimed:.0%} is reproduced by: {'; '.join(f'{r.name}, {r.throughput}' for r in reproduced)}."
    nearest, reading = min(given, key=lambda entry: abs(entry[0] - claimed))
    figures = sorted({f"{value:.1%}" for value, _ in given}, key=lambda text: float(text.rstrip("%")))
    return (
        f"{claimed:.0%} is not reproduced: the inputs give {', '.join(figures)}; nearest is {nearest:.1%} "
        f"({reading.name}; {reading.throughput})."
    )


def check_claim(claim: SavingClaim) -> ClaimCheck:
    """Compute every reading."""
    readings = tuple(_readings(claim))
    nearest = min(readings, key=lambda reading: abs(reading.saving_fraction - claim.claimed_fraction))
    cheaper, dearer = _bills(claim, _BASES[0][0])
    drop = claim.claimed_fraction - claim.claimed_with_engineers_fraction
    whole = _bills(claim, nearest.name)[1]
    return ClaimCheck(
        claim=claim,
        readings=readings,
        engineers_for_the_drop=drop * whole / (claim.engineer_usd_per_year * claim.years),
        throughput_for_the_claim=cheaper / dearer / (1 - claim.claimed_fraction),
    )


_BASES: Final = (
    ("each fleet's bill has this share of hardware", "own"),
    ("the dearer fleet's bill has it, and power follows the watts", "watts"),
    ("the dearer fleet's bill has it, and both draw the same", "same"),
)


def _readings(claim: SavingClaim) -> Iterator[Reading]:
    ratios = [("equal throughput", 1.0)]
    if claim.cheaper_throughput_fraction is not None:
        stated = claim.cheaper_throughput_fraction
        ratios.append((f"{claim.cheaper} at {stated:.0%} of the throughput", stated))
    people = claim.engineers * claim.engineer_usd_per_year * claim.years
    for name, _ in _BASES:
        for label, ratio in ratios:
            cheaper, dearer = _bills(claim, name)
            saving = 1 - cheaper / dearer / ratio
            taxed = 1 - (cheaper + people) / dearer / ratio
            yield Reading(
                name=name,
                throughput=label,
                saving_fraction=saving,
                with_engineers_fraction=taxed,
                varied_fractions=_varied(claim, name, ratio),
                reproduces_claim=abs(saving - claim.claimed_fraction) <= _ROUNDING,
                reproduces_claim_with_engineers=abs(taxed - claim.claimed_with_engineers_fraction) <= _ROUNDING,
            )


def _bills(claim: SavingClaim, name: str) -> tuple[float, float]:
    """Both fleets over the whole time, people apart."""
    kept = 1 - claim.discount_fraction
    cheap, dear = (claim.devices * usd * kept for usd in (claim.cheaper_usd, claim.dearer_usd))
    whole = dear / claim.hardware_fraction
    power = whole - dear
    kind = dict(_BASES)[name]
    if kind == "own":
        return cheap / claim.hardware_fraction, whole
    return cheap + power * (claim.cheaper_watts / claim.dearer_watts if kind == "watts" else 1.0), whole


def _varied(claim: SavingClaim, name: str, ratio: float) -> tuple[float, float]:
    ends = []
    for factor in (1 - _VARIED, 1 + _VARIED):
        varied = replace(claim, hardware_fraction=min(0.99, claim.hardware_fraction * factor))
        cheaper, dearer = _bills(varied, name)
        ends.append(1 - cheaper / dearer / ratio)
    return ends[0], ends[1]
