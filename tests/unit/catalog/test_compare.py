from penstock.catalog import load_accelerator
from penstock.catalog.accelerator_diff import compare


def kinds(left: str, right: str) -> set[str]:
    return {trap.kind for trap in compare(load_accelerator(left), load_accelerator(right)).traps}


def test_mi300x_against_h100_names_every_usual_error() -> None:
    assert kinds("mi300x", "h100") == {"sparse_against_dense", "gb_against_gib", "mesh_against_switch", "fp8_dialect"}


def test_dense_against_sparse_turns_the_ratio_around() -> None:
    traps = compare(load_accelerator("mi300x"), load_accelerator("h100")).traps
    text = next(trap.text for trap in traps if trap.kind == "sparse_against_dense")
    # 2,614.9 / 1,978.9 = 1.32 dense; against the sparse 3,957.8 it reads 0.66.
    assert "1.32x into 0.66x" in text


def test_parts_of_one_vendor_and_dialect_have_no_dialect_trap() -> None:
    assert "fp8_dialect" not in kinds("h100", "b200")


def test_rows_line_up_only_what_one_of_them_states() -> None:
    rows = {row.name: row for row in compare(load_accelerator("mi300x"), load_accelerator("h100")).rows}
    assert rows["memory.hbm_bytes"].ratio == 192 / 80
    assert rows["fp8_dialect"].ratio is None
    assert "fp4_formats" not in rows
