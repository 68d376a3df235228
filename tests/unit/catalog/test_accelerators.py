import tomllib
from importlib.resources import files
from typing import Any

import pytest

from penstock.catalog import accelerator_ids, load_accelerator, load_accelerators
from penstock.catalog._catalog_files import parse_accelerator
from penstock.catalog.accelerator import Accelerator, Basis, Precision, fact_names
from penstock.errors import CatalogError, UnknownName, UnsupportedPrecision
from penstock.units import GIB, TERA

ACCELERATORS = load_accelerators()


def raw(ident: str) -> dict[str, Any]:
    path = files("penstock.catalog") / "data" / "accelerators" / f"{ident}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


def test_the_catalog_holds_both_vendors() -> None:
    assert len(ACCELERATORS) >= 29
    assert {"amd", "nvidia"} <= {accelerator.vendor for accelerator in ACCELERATORS}


@pytest.mark.parametrize("accelerator", ACCELERATORS, ids=lambda accelerator: accelerator.id)
def test_every_fact_has_exactly_one_source_with_a_date(accelerator: Accelerator) -> None:
    for name in fact_names(accelerator):
        assert accelerator.source_of(name).checked_on.year >= 2026
    assert accelerator.id in accelerator_ids()


@pytest.mark.parametrize("accelerator", ACCELERATORS, ids=lambda accelerator: accelerator.id)
def test_sparse_is_never_mistaken_for_dense(accelerator: Accelerator) -> None:
    for precision, sparse in (accelerator.sparse_flops_per_s or {}).items():
        dense = accelerator.dense_flops_per_s.get(precision)
        # Blackwell Ultra raised only its dense FP4 rate: 18 sparse over 13.5 dense.
        least = 1.3 if accelerator.id in {"b300_sxm", "gb300"} and precision is Precision.FP4 else 1.9
        if dense is not None:
            assert least <= sparse / dense <= 2.1, precision


@pytest.mark.parametrize("accelerator", ACCELERATORS, ids=lambda accelerator: accelerator.id)
def test_links_and_memory_are_consistent(accelerator: Accelerator) -> None:
    assert accelerator.usable_hbm_bytes <= accelerator.memory.hbm_bytes
    assert 0.9 <= accelerator.memory.hbm_bytes / (accelerator.memory.nominal_gb * 10**9) <= 1.08
    if (
        accelerator.link
        and accelerator.link.per_peer_bytes_per_s_one_way
        and accelerator.link.aggregate_bytes_per_s_one_way
    ):
        assert accelerator.link.per_peer_bytes_per_s_one_way <= accelerator.link.aggregate_bytes_per_s_one_way


@pytest.mark.parametrize(
    ("short", "ident"), [("h100", "h100_sxm"), ("h200", "h200_sxm"), ("b200", "b200_sxm"), ("MI300X", "mi300x")]
)
def test_short_names_are_the_sxm_parts(short: str, ident: str) -> None:
    assert load_accelerator(short).id == ident


def test_figures_that_print_gets_wrong() -> None:
    # AMD and NVIDIA data sheets, dense: see each accelerator's sources.
    assert load_accelerator("h100").peak_flops_per_s(Precision.FP8) == pytest.approx(1979 * TERA, rel=0.001)
    assert load_accelerator("mi300x").peak_flops_per_s(Precision.FP8) == pytest.approx(2615 * TERA, rel=0.001)
    assert load_accelerator("mi300x").memory.hbm_bytes == 192 * GIB
    assert load_accelerator("mi325x").memory.hbm_bytes == 256 * GIB
    assert load_accelerator("mi300x").fp8_dialect == "fnuz"
    assert load_accelerator("mi325x").fp8_dialect == "fnuz"
    assert load_accelerator("mi355x").fp8_dialect == "ocp"


def test_one_device_is_what_an_engine_sees() -> None:
    assert load_accelerator("mi250x").memory.hbm_bytes == 64 * GIB


def test_a_missing_datapath_is_refused_not_guessed() -> None:
    with pytest.raises(UnsupportedPrecision, match="a100_80gb_sxm has no fp8 datapath"):
        load_accelerator("a100").peak_flops_per_s(Precision.FP8)


def test_unverified_and_announced_parts_stay_out_of_recommendations() -> None:
    hidden = {accelerator.id for accelerator in ACCELERATORS if not accelerator.recommendable}
    assert {"mi455x", "vera_rubin", "mi308x"} <= hidden
    assert not hidden & {"mi300x", "mi325x", "mi355x", "h100_sxm", "h200_sxm", "b200_sxm"}


def test_what_is_unverified_says_so() -> None:
    accelerator = load_accelerator("mi455x")
    assert accelerator.source_of("memory.hbm_bytes").basis is Basis.UNVERIFIED


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"'mi300'; did you mean mi300x.*\? `penstock catalog list` shows all"):
        load_accelerator("mi300")
    with pytest.raises(UnknownName, match="named 'zzz'; `penstock catalog list` shows all"):
        load_accelerator("zzz")


def edited(change: str, value: object) -> dict[str, Any]:
    table = raw("mi300x")
    parent, _, key = change.rpartition(".")
    target = table[parent] if parent else table
    target[key] = value
    return table


@pytest.mark.parametrize(
    ("change", "value", "complaint"),
    [
        ("memory.hbm_bytes", "206158430208", "whole number without quotes"),
        ("memory.hbm_bytes", -1, "positive"),
        ("memory.usable_hbm_bytes", 10**15, "at most hbm_bytes"),
        ("tflops", 1, "[Uu]nexpected"),
        ("fp8_dialect", "e4m3", "ocp"),
        ("sources", [], "no source for"),
    ],
)
def test_a_careless_edit_is_refused(change: str, value: object, complaint: str) -> None:
    with pytest.raises(CatalogError, match=complaint):
        parse_accelerator(edited(change, value), "mi300x.toml")


def test_two_sources_for_one_fact_are_refused() -> None:
    table = raw("mi300x")
    table["sources"] = [*table["sources"], table["sources"][0]]
    with pytest.raises(CatalogError, match="two sources for"):
        parse_accelerator(table, "mi300x.toml")


def test_a_source_for_a_fact_that_is_not_stated_is_refused() -> None:
    table = raw("mi300x")
    table["sources"][0] = {**table["sources"][0], "fields": [*table["sources"][0]["fields"], "memory.colour"]}
    with pytest.raises(CatalogError, match=r"memory\.colour"):
        parse_accelerator(table, "mi300x.toml")


@pytest.mark.parametrize(("typed", "ident"), [("h100-nvl", "h100_nvl"), ("RTX Pro 6000", "rtx_pro_6000_server")])
def test_a_name_may_be_written_with_other_signs(typed: str, ident: str) -> None:
    assert load_accelerator(typed).id == ident


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("rtx5090", "nearest is rtx_pro_6000"),
        ("l4", "nearest is l40s"),
        ("t4", "nothing here is like it"),
        ("V100", "nothing here is like it"),
        ("DGX Spark", "memory it shares with its CPU"),
        ("strix-halo", "memory it shares with its CPU"),
    ],
)
def test_a_part_that_is_not_here_is_answered_with_what_is_like_it(typed: str, said: str) -> None:
    with pytest.raises(UnknownName, match="is not in the catalog") as caught:
        load_accelerator(typed)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
