"""The scorecard's 31% and 19%, recomputed from its own inputs."""

from math import isclose

from penstock.planning.saving_claim import SavingClaim, check_claim

SCORECARD = SavingClaim(
    title="scorecard",
    cheaper="mi325x",
    dearer="h200",
    devices=800,
    cheaper_usd=22_000,
    dearer_usd=35_000,
    discount_fraction=0.14,
    cheaper_watts=750,
    dearer_watts=700,
    hardware_fraction=0.6,
    years=3,
    engineers=2,
    engineer_usd_per_year=280_000,
    claimed_fraction=0.31,
    claimed_with_engineers_fraction=0.19,
    cheaper_throughput_fraction=None,
)
H200 = 800 * 35_000 * 0.86 / 0.6
PEOPLE = 2 * 280_000 * 3


def test_each_reading_by_hand() -> None:
    own, watts, same = check_claim(SCORECARD).readings
    assert isclose(own.saving_fraction, 1 - 22 / 35)
    assert isclose(own.with_engineers_fraction, 1 - (22 / 35 * H200 + PEOPLE) / H200)
    mi325x = 800 * 22_000 * 0.86 + 0.4 * H200 * 750 / 700
    assert isclose(watts.saving_fraction, 1 - mi325x / H200)
    assert isclose(same.saving_fraction, 1 - (800 * 22_000 * 0.86 + 0.4 * H200) / H200)


def test_no_reading_gives_31_percent_and_19_percent_appears_only_before_the_engineers() -> None:
    check = check_claim(SCORECARD)
    assert not any(reading.reproduces_claim for reading in check.readings)
    assert not any(reading.reproduces_claim_with_engineers for reading in check.readings)
    assert round(check.readings[1].saving_fraction, 2) == 0.19
    assert "saving of 31% does not follow from" in check.verdicts[0]
    assert "give 19.4%, 22.3%, 37.1% in different interpretations; nearest is 37.1%" in check.verdicts[0]


def test_two_engineers_cost_four_points_and_not_twelve() -> None:
    check = check_claim(SCORECARD)
    own = check.readings[0]
    assert isclose(own.saving_fraction - own.with_engineers_fraction, PEOPLE / H200)
    assert PEOPLE / H200 < 0.05
    assert isclose(check.engineers_for_the_drop, 0.12 * H200 / (280_000 * 3))
    assert "5.7 engineers, not 2" in check.verdicts[2]


def test_the_throughput_that_would_give_the_claim_gives_it() -> None:
    check = check_claim(SCORECARD)
    assert isclose(1 - 22 / 35 / check.throughput_for_the_claim, 0.31)


def test_a_claim_that_follows_is_said_to_follow() -> None:
    honest = SavingClaim(
        **{
            **{name: getattr(SCORECARD, name) for name in SCORECARD.__slots__},
            "claimed_fraction": 0.37,
            "claimed_with_engineers_fraction": 0.33,
        }
    )
    check = check_claim(honest)
    assert check.readings[0].reproduces_claim
    assert check.readings[0].reproduces_claim_with_engineers
    assert "saving of 37% follows from" in check.verdicts[0]
    assert check.verdicts[2].startswith("One interpretation of the claim gives both")
