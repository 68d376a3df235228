"""An accelerator that the catalog does not have is read from the user's file, and answered for without prices."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.api.arguments.choices import counted_targets
from penstock.api.arguments.fleet_argument import deployed_pool, placed_pool
from penstock.api.fit import fit
from penstock.api.predict import PredictAnswer, predict
from penstock.catalog import load_accelerator
from penstock.cli.root import app
from penstock.errors import UnreadableFile, UsageError
from penstock.fleet.deployment import Parallelism
from penstock.fleet.fleet_file import read_fleet, write_fleet

FLEETS = Path(__file__).parents[3] / "examples" / "fleets"

OWN = """
id = "own_card"
name = "A card of our own"
vendor = "intel"
architecture = "Own"
form_factor = "PCIe"
status = "shipping"

[memory]
kind = "HBM3"
nominal_gb = 96
hbm_bytes = 96_000_000_000
hbm_bytes_per_s = 3_000_000_000_000

[dense_flops_per_s]
bf16 = 800_000_000_000_000

[node]
devices = 8

[[sources]]
fields = ["memory", "dense_flops_per_s", "node"]
checked_on = 2026-11-18
basis = "unverified"
note = "measured by its owner"
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.toml"
    path.write_text(OWN, encoding="utf-8")
    return path


def test_a_file_is_an_accelerator_with_a_count_and_beside_catalog_names(own: Path) -> None:
    (mine, two), (known, none) = counted_targets(f"{own}:2,h100")
    assert (mine.id, mine.memory.hbm_bytes, two) == ("own_card", 96_000_000_000, 2)
    assert (known, none) == (load_accelerator("h100"), None)


def test_fit_and_predict_answer_for_it_without_a_price(own: Path) -> None:
    fitted = fit("llama-3.1-8b", f"{own}")
    assert fitted.good
    assert fitted.rents == (None,)
    answer = predict("llama-3.1-8b", counted_targets(str(own))[0][0], engine="vllm", concurrency=8)
    assert isinstance(answer, PredictAnswer)
    (row,) = answer.rows()
    assert (row["accelerator"], row["tier"], row["usd_per_output_mtok"]) == ("own_card", "transferred", None)
    # A step of 8 users reads 16 GB of weights at 3 TB/s, and no engine is faster than that.
    assert isinstance(row["tpot_s"], float)
    assert row["tpot_s"] > 15e9 / 3e12


def test_the_command_line_takes_the_file(own: Path) -> None:
    done = CliRunner().invoke(app, ["fit", "llama-3.1-8b", "--on", str(own), "--json"])
    assert done.exit_code == 0, done.output
    assert "own_card" in json.dumps(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (('id = "own_card"', 'id = "h100_sxm"'), "is in the catalog"),
        (("nominal_gb = 96", 'nominal_gb = "96"'), "memory.nominal_gb"),
        (("hbm_bytes_per_s = 3_000_000_000_000", "hbm_bytes_per_s = 0"), "must be positive"),
        (("[node]", "[node"), "own.toml"),
        (("[node]", "colour = 3\n[node]"), "colour"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(own: Path, change: tuple[str, str], reason: str) -> None:
    own.write_text(OWN.replace(*change), encoding="utf-8")
    with pytest.raises(UsageError, match=reason) as raised:
        counted_targets(str(own))
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match=r"none\.toml"):
        counted_targets(str(tmp_path / "none.toml"))


def test_a_fleet_file_names_the_file(own: Path) -> None:
    known = read_fleet((FLEETS / "chat-70b-h100-mi300x.yaml").read_text(), "fleet.yaml")
    pool = replace(known.pools[0], accelerator=f"{own}", vendor="intel", split=Parallelism(tp=2))
    fleet = replace(known, pools=(pool,), routes=(replace(known.routes[0], weights={"h100": 1.0}),))
    assert deployed_pool(pool).accelerator.id == "own_card"
    assert placed_pool(fleet, pool).cost.step_s > placed_pool(known, known.pools[0]).cost.step_s
    assert read_fleet(write_fleet(fleet), "own.yaml").pools == (pool,)
