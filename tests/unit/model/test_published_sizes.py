"""Parameter counts against what publishers state; each expected value and its source is in the catalog file."""

import pytest

from examples import model
from penstock.catalog import load_models
from penstock.catalog.catalog_model import CatalogModel
from penstock.model import ModelSpec, Part

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
    ],
)
def test_some_counts_are_exact_to_the_last_parameter(name: str, stored_params: int) -> None:
    # Router correction biases and other vectors included, multi-token prediction and vision too.
    assert sum(weight.params for weight in model(name).weights) == pytest.approx(stored_params, rel=2e-6)
