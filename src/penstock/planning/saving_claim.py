"""Checks whether a published saving follows from its stated inputs, for every reasonable interpretation of them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal

from penstock.reading.scalars import Count, number

_ROUNDING: Final = 0.005
"""Half a percentage point. A claim in whole percent is reproduced by every value that rounds to the claim."""
_VARIED: Final = 0.2
SAVING_KEYS: Final = {
    "discount_fraction": "discount",
    "hardware_fraction": "hardware_share",
    "claimed_fraction": "claimed",
    "claimed_with_engineers_fraction": "claimed_with_engineers",
    "cheaper_throughput_fraction": "throughput_ratio",
}
"""Keys in claim files, by field of `SavingClaim`. A field that is not listed has its own name as key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingClaim:
    """A published saving with its stated inputs, to be recomputed."""

    title: str
    cheaper: str
    dearer: str
    devices: Count
    cheaper_usd: Annotated[float, number(low=1, high=1e12)]
    dearer_usd: Annotated[float, number(low=1, high=1e12)]
    discount_fraction: Annotated[float, number(high=0.99)]
    cheaper_watts: Annotated[float, number(low=1, high=1e12)]
    dearer_watts: Annotated[float, number(low=1, high=1e12)]
    hardware_fraction: Annotated[float, number(low=0.01, high=0.99)]
    """Share of hardware depreciation in the total; power and cooling are the rest."""
    years: Annotated[float, number(low=0.1, high=30)]
    engineers: Annotated[float, number(high=1e12)]
    engineer_usd_per_year: Annotated[float, number(low=1, high=1e12)]
    claimed_fraction: Annotated[float, number(high=0.99)]
    claimed_with_engineers_fraction: Annotated[float, number(high=0.99)]
    cheaper_throughput_fraction: Annotated[float, number(low=0.01, high=100)] | None = None
    """Throughput of the cheaper accelerator relative to the dearer one; None if not stated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One interpretation of the stated inputs, and the resulting saving."""

    name: str
    throughput: str
    saving_fraction: float
    with_engineers_fraction: float
    varied_fractions: tuple[float, float]
    """The saving if the hardware share is 20% smaller, and if it is 20% larger."""
    reproduces_claim: bool
    reproduces_claim_with_engineers: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimCheck:
    """The savings under all interpretations of the inputs, and the input values that would reproduce the claim."""

    claim: SavingClaim
    readings: tuple[Reading, ...]
    engineers_for_the_drop: float
    """Number of engineers that explains the difference between the two claimed savings.

    Equal throughput is assumed. The bill of the dearer fleet is the same in every interpretation.
    """
    throughput_for_the_claim: float
    """Relative throughput of the cheaper accelerator that gives the claimed saving under the interpretation `own`."""

    @property
    def verdicts(self) -> tuple[str, ...]:
        """One sentence for each claimed saving."""
        claim = self.claim
        first = [reading for reading in self.readings if reading.reproduces_claim]
        second = [reading for reading in self.readings if reading.reproduces_claim_with_engineers]
        both = [reading for reading in first if reading in second]
        stated, given = claim.engineers, claim.claimed_with_engineers_fraction
        return (
            _sentence(
                f"saving of {claim.claimed_fraction:.0%}",
                claim.claimed_fraction,
                [(r.saving_fraction, r) for r in self.readings],
                first,
            ),
            _sentence(
                f"saving of {given:.0%} after engineering cost",
                given,
                [(r.with_engineers_fraction, r) for r in self.readings],
                second,
            ),
            f"{'One' if both else 'No'} interpretation of the claim gives both of its figures. "
            + self._drop(stated, given),
        )

    def _drop(self, stated: float, given: float) -> str:
        return (
            f"The drop from {self.claim.claimed_fraction:.0%} to {given:.0%} equals the cost of "
            f"{self.engineers_for_the_drop:.1f} engineers, not {stated:g}."
        )


def _sentence(name: str, claimed: float, given: list[tuple[float, Reading]], reproduced: list[Reading]) -> str:
    if reproduced:
        under = "; ".join(f"{r.name}, {r.throughput}" for r in reproduced)
        return f"The claimed {name} follows from the claim's own inputs under this assumption: {under}."
    nearest, reading = min(given, key=lambda entry: abs(entry[0] - claimed))
    figures = dict.fromkeys(f"{value:.1%}" for value in sorted(value for value, _ in given))
    return (
        f"The claimed {name} does not follow from the claim's own inputs, which give {', '.join(figures)} in different "
        f"interpretations; nearest is {nearest:.1%} ({reading.name}; {reading.throughput})."
    )


def check_claim(claim: SavingClaim) -> ClaimCheck:
    """Compute the saving for every interpretation of the inputs, and the inputs that would reproduce the claim."""
    readings = tuple(_readings(claim))
    cheaper, dearer = _bills(claim, "own")
    drop = claim.claimed_fraction - claim.claimed_with_engineers_fraction
    return ClaimCheck(
        claim=claim,
        readings=readings,
        engineers_for_the_drop=drop * dearer / (claim.engineer_usd_per_year * claim.years),
        throughput_for_the_claim=cheaper / dearer / (1 - claim.claimed_fraction),
    )


_Basis = Literal["own", "watts", "same"]
_BASES: Final[tuple[_Basis, ...]] = ("own", "watts", "same")
"""Interpretations of the stated hardware share.

With `own`, the hardware share applies to each of the two bills. With `watts` and `same`, the hardware share applies to
the dearer bill only. With `watts`, the power cost of the cheaper fleet is the dearer fleet's power cost, scaled by
watts. With `same`, both fleets have the same power cost.
"""


def _name(claim: SavingClaim, basis: _Basis) -> str:
    share = f"{claim.hardware_fraction:.0%}"
    if basis == "own":
        return f"hardware is {share} of each bill"
    draws = "power cost is proportional to watts" if basis == "watts" else "both bills have the same power cost"
    return f"hardware is {share} of the {claim.dearer} bill, {draws}"


def _readings(claim: SavingClaim) -> Iterator[Reading]:
    ratios = [("equal throughput", 1.0)]
    if claim.cheaper_throughput_fraction is not None:
        stated = claim.cheaper_throughput_fraction
        ratios.append((f"{claim.cheaper} at {stated:.0%} of the throughput", stated))
    people = claim.engineers * claim.engineer_usd_per_year * claim.years
    for basis in _BASES:
        for label, ratio in ratios:
            cheaper, dearer = _bills(claim, basis)
            saving = 1 - cheaper / dearer / ratio
            taxed = 1 - (cheaper + people) / dearer / ratio
            yield Reading(
                name=_name(claim, basis),
                throughput=label,
                saving_fraction=saving,
                with_engineers_fraction=taxed,
                varied_fractions=_sensitivity_range(claim, basis, ratio),
                reproduces_claim=abs(saving - claim.claimed_fraction) <= _ROUNDING,
                reproduces_claim_with_engineers=abs(taxed - claim.claimed_with_engineers_fraction) <= _ROUNDING,
            )


def _bills(claim: SavingClaim, basis: _Basis) -> tuple[float, float]:
    """Return the bills of the cheaper and the dearer fleet over the whole period, without engineers."""
    kept = 1 - claim.discount_fraction
    cheap, dear = (claim.devices * usd * kept for usd in (claim.cheaper_usd, claim.dearer_usd))
    whole = dear / claim.hardware_fraction
    power = whole - dear
    if basis == "own":
        return cheap / claim.hardware_fraction, whole
    return cheap + power * (claim.cheaper_watts / claim.dearer_watts if basis == "watts" else 1.0), whole


def _sensitivity_range(claim: SavingClaim, basis: _Basis, ratio: float) -> tuple[float, float]:
    ends = []
    for factor in (1 - _VARIED, 1 + _VARIED):
        varied = replace(claim, hardware_fraction=min(0.99, claim.hardware_fraction * factor))
        cheaper, dearer = _bills(varied, basis)
        ends.append(1 - cheaper / dearer / ratio)
    return ends[0], ends[1]
