"""A guide says what decides, which formats it compared, and acquires as a plan does."""

from collections.abc import Iterator

from penstock.guide.guide_file import GridEntry, GuideFile
from penstock.guide.guide_result import GuidePool, GuideResult
from penstock.planning.spec.plan_file import PlanFile
from penstock.report.guide.guide_sentences import acquisition_sentence, binding_sentences, format_sentence
from small_guides import GUIDE, guided

ONE = GUIDE.replace("[1k, 8k]", "[1k]").replace("[2, 20, 90]", "[2]")
SERVERS = ONE.replace("instances: [1, 2]", "instances: []").replace("value: 2.0, low: 1.7, high: 2.6", "value: 2.0")


def pools(result: GuideResult) -> Iterator[GuidePool]:
    for cell in result.cells:
        for fleet in cell.fleets:
            yield from fleet.pools


def test_the_size_of_an_instance_is_a_reason() -> None:
    """Compute was named, where one vendor's instances have eight devices and the load needs one."""
    (cell,) = guided(SERVERS, mi300x=5.0).cells
    assert cell.winner is not None
    assert cell.rival is not None
    assert cell.winner.vendor == "nvidia"
    assert cell.rival.devices == 16
    assert cell.binding == "instance size"
    assert "larger than the load needs" in next(iter(binding_sentences(guided(SERVERS, mi300x=5.0))))
    (single,) = guided(ONE, mi300x=5.0).cells
    assert single.winner is not None
    assert single.winner.vendor == "amd"


def test_the_checkpoint_and_fp8_are_compared_and_printed() -> None:
    result = guided(ONE)
    assert GridEntry(models=("llama-3.1-8b",)).weights == ("checkpoint", "fp8")
    assert {pool.weights for pool in pools(result)} <= {"bf16", "fp8"}
    for pool in pools(result):
        assert pool.weights in format_sentence(result)


def test_a_guide_acquires_as_a_plan_does() -> None:
    """A guide rented by the hour, a plan signed for 12 months, and they named different vendors."""
    usual = {entry.name: entry.default for entry in GuideFile.__dataclass_fields__.values()}
    assert usual["acquire"] == PlanFile.__dataclass_fields__["acquire"].default
    text = ONE.replace("acquire: [rent]\n", "").replace(
        "high: 4.0}", "high: 4.0}, contracts: [{years: 1, usd_per_hour: 1.5}]"
    )
    result = guided(text)
    assert {pool.acquired for pool in pools(result) if pool.accelerator == "h200_sxm"} == {"12 months"}
    assert "h200 for 12 months" in acquisition_sentence(result)
    (cell,) = result.cells
    assert cell.winner is not None
    assert cell.winner.rent_usd_per_device_hour == 1.5
    assert cell.flip_rent_usd is not None
