"""Every config collected for the project, read from the reference files beside the checkout."""

import json
from pathlib import Path

import pytest

from penstock.checkpoint import open_checkpoint
from penstock.errors import PenstockError
from penstock.model import read_config

pytestmark = pytest.mark.shared


def test_every_collected_config_parses_or_is_refused_by_name(shared: Path) -> None:
    folder = shared / "data" / "model_configs"
    every = sorted(folder.glob("*.json"))
    configs = [path for path in every if not path.name.endswith("_hf_quant_config.json")]
    parsed, refused = 0, []
    for path in configs:
        base = path.name.removesuffix("_config.json")
        sidecar = folder / f"{base}_hf_quant_config.json"
        try:
            spec = read_config(path.read_bytes(), base, sidecar.read_bytes() if sidecar.is_file() else None)
        except PenstockError as error:
            refused.append((base, str(error)))
        else:
            parsed += 1
            assert spec.total_params > 10**8
            assert spec.weight_bytes > 0
    # A sidecar counts as read when the config beside it was.
    assert len(every) >= 117
    assert parsed / len(configs) >= 0.95, refused
    assert all(reason for _, reason in refused)


@pytest.mark.parametrize(
    ("config", "catalog_name"),
    [
        ("Qwen--Qwen3-32B", "qwen3-32b"),
        ("deepseek-ai--DeepSeek-V4-Pro", "deepseek-v4-pro"),
        ("zai-org--GLM-5.2", "glm-5.2"),
    ],
)
def test_the_trimmed_catalog_config_says_the_same_as_the_whole_one(
    shared: Path, config: str, catalog_name: str
) -> None:
    whole = read_config((shared / "data" / "model_configs" / f"{config}_config.json").read_bytes(), catalog_name)
    trimmed = open_checkpoint(catalog_name).spec
    assert trimmed.weights == whole.weights
    assert trimmed.layers == whole.layers


def test_every_collected_accelerator_and_price_is_in_the_catalog(shared: Path) -> None:
    from penstock.catalog import accelerator_ids, load_prices, priced_ids  # noqa: PLC0415

    collected = json.loads((shared / "data" / "accelerators.json").read_text())
    assert {entry["id"] for entry in collected["accelerators"]} <= set(accelerator_ids())
    rows = (shared / "data" / "prices.csv").read_text().splitlines()[1:]
    recorded = {price.id for ident in priced_ids() for price in load_prices(ident)}
    # Ten rows are node power or a ratio between two accelerators, not prices.
    assert len({row.split(",")[0] for row in rows} - recorded) == 10
