"""Parameter counts against what publishers state; each expected value and its source is in the catalog file."""

from math import ceil

import pytest

from examples import model
from penstock.catalog import load_models
from penstock.catalog.catalog_model import CatalogModel
from penstock.model import ModelSpec, Part
from penstock.model.weight import Weight

PUBLISHED = [known for known in load_models() if known.published is not None]


def counted(spec: ModelSpec, excludes: tuple[str, ...]) -> int:
    return sum(count for part, count in spec.params_by_part.items() if part.value not in excludes)


def active(spec: ModelSpec, excludes: tuple[str, ...]) -> int:
    skipped = {Part.MTP.value, Part.VISION.value, *excludes}
    return sum(weight.active_params for weight in spec.weights if weight.part.value not in skipped)


@pytest.mark.parametrize("known", PUBLISHED, ids=lambda known: known.id)
def test_total_parameters_are_within_one_percent(known: CatalogModel) -> None:
    assert known.published is not None
    assert counted(model(known.id), known.published.excludes) == pytest.approx(known.published.total_params, rel=0.01)


@pytest.mark.parametrize(
    "known",
    [known for known in PUBLISHED if known.published and known.published.active_params],
    ids=lambda known: known.id,
)
def test_active_parameters_are_within_three_percent(known: CatalogModel) -> None:
    assert known.published is not None
    assert known.published.active_params is not None
    found = active(model(known.id), known.published.active_excludes)
    assert found == pytest.approx(known.published.active_params, rel=0.03)


def test_enough_models_and_architectures_are_checked() -> None:
    assert len(PUBLISHED) >= 60
    assert len({model(known.id).architecture for known in PUBLISHED}) >= 25
    assert sum(1 for known in PUBLISHED if known.published and known.published.active_params) >= 25
    assert all(known.published and known.published.source.startswith("https://") for known in PUBLISHED)


@pytest.mark.parametrize(
    ("name", "stored_params"),
    [
        # Element totals of the released safetensors, counted the same way: see each catalog file's source.
        ("llama-3.1-70b", 70_553_706_496),
        ("llama-3.1-405b", 405_853_388_800),
        ("qwen3-30b-a3b", 30_532_122_624),
        ("qwen3.5-397b-a17b", 403_397_928_944),
        ("qwen3-next-80b", 81_324_862_720),
        ("qwen3-vl-8b", 8_767_123_696),
        ("gemma-2-27b", 27_227_128_320),
        ("nemotron-3-super-fp8", 123_611_033_088),
        ("glm-4.7", 358_337_791_296),
        ("gpt-oss-120b", 116_829_156_672),
        ("mixtral-8x7b", 46_702_792_704),
        ("deepseek-v2-lite", 15_706_484_224),
        ("glm-4.5-air", 110_468_824_832),
        ("glm-4.7-flash", 31_221_488_576),
        ("gemma-3-27b", 27_432_406_640),
        ("olmo-3.1-32b", 32_233_522_176),
        ("qwen2.5-vl-32b", 33_452_718_336),
        ("qwen2.5-vl-72b", 73_410_777_344),
    ],
)
def test_some_counts_are_exact_to_the_last_parameter(name: str, stored_params: int) -> None:
    # Router correction biases and other vectors included, multi-token prediction and vision too.
    assert sum(weight.params for weight in model(name).weights) == pytest.approx(stored_params, rel=2e-6)


def scales(weight: Weight) -> int:
    """Count the scales that a quantised weight stores in addition to its elements."""
    stored = weight.format
    if not stored.scale_bits:
        return 0
    rows, columns = weight.shape[0], weight.shape[1]
    groups = ceil(rows / (stored.scale_rows or rows)) * ceil(columns / (stored.scale_columns or columns))
    return groups * weight.copies


COUNTED = [
    "exaone-4-32b-fp8",
    "gemma-3-27b-fp8-dynamic",
    "llama-3.1-8b-fp8-dynamic",
    "llama-3.2-1b-fp8-dynamic",
    "llama-3.3-70b-fp8-dynamic",
    "mistral-small-24b-fp8-dynamic",
    "qwen3-0.6b-fp8",
    "qwen3-1.7b-fp8",
    "qwen3-235b-a22b-2507-fp8",
    "qwen3-30b-a3b-2507-fp8",
    "qwen3-4b-fp8",
    "qwen3-8b-fp8",
    "qwen3-8b-fp8-dynamic",
    "qwen3-next-80b-fp8",
    "qwen3-vl-235b-a22b-fp8",
    "qwen3-vl-8b-fp8",
]


@pytest.mark.parametrize("name", COUNTED)
def test_quantised_copies_store_as_many_elements_and_scales_as_published(name: str) -> None:
    # Which modules are quantised, and how many weights share a scale, decide the number of stored scales.
    [known] = [known for known in PUBLISHED if known.id == name]
    assert known.published is not None
    assert sum(weight.params + scales(weight) for weight in model(name).weights) == known.published.total_params
