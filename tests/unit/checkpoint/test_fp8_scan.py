"""The scan finds every planted defect, and nothing in a sound checkpoint."""

import json
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
import pytest
from numpy.typing import NDArray

from fp8_checkpoints import (
    Tensors,
    block_checkpoint,
    e4m3fn_codes,
    e8m0_checkpoint,
    float32,
    quantised,
    tensor_checkpoint,
    write_safetensors,
)
from penstock.checkpoint.fp8.numerics import Dialect
from penstock.checkpoint.fp8.scan import Fp8Scan, scan_fp8
from penstock.cli.commands.fp8 import scan_command
from penstock.errors import CheckpointError

SOUND: dict[str, Callable[[], Tensors]] = {
    "per tensor": tensor_checkpoint,
    "block": block_checkpoint,
    "e8m0": e8m0_checkpoint,
}
LAYER = "model.layers.3"


def scanned(tmp_path: Path, tensors: Tensors) -> Fp8Scan:
    write_safetensors(tmp_path / "model.safetensors", tensors)
    return scan_fp8(tmp_path)


@pytest.mark.parametrize("kind", SOUND)
def test_a_sound_checkpoint_has_no_findings(tmp_path: Path, kind: str) -> None:
    found = scanned(tmp_path, SOUND[kind]())
    assert found.findings == ()
    assert found.tensors
    assert all(group.dialect is Dialect.E4M3FN for group in found.groups)


def change(tensors: Tensors, name: str, edit: Callable[[np.ndarray], object]) -> None:
    dtype, shape, data = tensors[name]
    kind = "<f4" if dtype == "F32" else np.uint8
    array = np.frombuffer(data, kind).copy()
    edit(array)
    tensors[name] = (dtype, shape, array.tobytes())


def plant_nan(t: Tensors) -> None:
    change(t, f"{LAYER}.mlp.down_proj.weight", lambda codes: codes.__setitem__(slice(1000, 1003), 0x7F))


def plant_negative_nan(t: Tensors) -> None:
    change(t, f"{LAYER}.mlp.down_proj.weight", lambda codes: codes.__setitem__(65535, 0xFF))


def plant_missing_scale(t: Tensors) -> None:
    del t[f"{LAYER}.mlp.down_proj.weight_scale"]


def plant_zero_scale(t: Tensors) -> None:
    t[f"{LAYER}.mlp.down_proj.weight_scale"] = ("F32", (1,), float32([0.0]))


def plant_nan_scale(t: Tensors) -> None:
    t[f"{LAYER}.mlp.down_proj.weight_scale"] = ("F32", (1,), float32([float("nan")]))


def plant_infinite_scale(t: Tensors) -> None:
    t[f"{LAYER}.self_attn.q_proj.input_scale"] = ("F32", (1,), float32([float("inf")]))


def plant_negative_scale(t: Tensors) -> None:
    t[f"{LAYER}.self_attn.q_proj.weight_scale"] = ("F32", (1,), float32([-0.1]))


def plant_scale_shape(t: Tensors) -> None:
    t[f"{LAYER}.self_attn.q_proj.weight_scale"] = ("F32", (3, 7), float32([0.1] * 21))


def plant_integer_scale(t: Tensors) -> None:
    t[f"{LAYER}.self_attn.q_proj.weight_scale"] = ("I32", (1,), np.array([1], "<i4").tobytes())


def plant_scale_outlier(t: Tensors) -> None:
    change(t, f"{LAYER}.self_attn.q_proj.weight_scale", lambda scale: scale.__imul__(64))


def plant_missing_input_scale(t: Tensors) -> None:
    del t[f"{LAYER}.self_attn.q_proj.input_scale"]


def plant_half_a_kv_pair(t: Tensors) -> None:
    del t[f"{LAYER}.self_attn.v_proj.v_scale"]


def plant_kv_in_some_layers(t: Tensors) -> None:
    del t[f"{LAYER}.self_attn.v_proj.v_scale"], t[f"{LAYER}.self_attn.k_proj.k_scale"]


def plant_kv_placeholders(t: Tensors) -> None:
    for name in t:
        if name.endswith(("k_scale", "v_scale")):
            t[name] = ("F32", (1,), float32([1.0]))


def plant_converted_bytes(t: Tensors) -> None:
    """What a converter for FNUZ leaves behind when it keeps the label."""
    for name in [name for name in t if name.endswith("mlp.down_proj.weight")]:
        change(t, name, lambda codes: codes.__setitem__(codes == 0x80, 0))
        change(t, f"{name}_scale", lambda scale: scale.__imul__(2))


def plant_saturation(t: Tensors) -> None:
    change(t, f"{LAYER}.mlp.down_proj.weight", lambda codes: codes.__setitem__(slice(0, 3000), 0x7E))


def plant_unused_range(t: Tensors) -> None:
    def smaller(codes: np.ndarray) -> None:
        magnitude = (codes & 0x7F).astype(np.int16) - (6 << 3)
        codes[:] = (np.maximum(magnitude, 0).astype(np.uint8)) | (codes & 0x80)

    change(t, f"{LAYER}.mlp.down_proj.weight", smaller)


def plant_zeros(t: Tensors) -> None:
    change(t, f"{LAYER}.mlp.down_proj.weight", lambda codes: codes.__setitem__(slice(None), 0))


def plant_fnuz_nan(t: Tensors) -> None:
    dtype, shape, data = t[f"{LAYER}.mlp.down_proj.weight"]
    assert dtype == "F8_E4M3"
    t[f"{LAYER}.mlp.down_proj.weight"] = ("F8_E4M3FNUZ", shape, data)


DEFECTS: list[tuple[str, Callable[[Tensors], None]]] = [
    ("nan_codes", plant_nan),
    ("nan_codes", plant_negative_nan),
    ("nan_codes", plant_fnuz_nan),
    ("mixed_dialects", plant_fnuz_nan),
    ("missing_scale", plant_missing_scale),
    ("scale_zero", plant_zero_scale),
    ("scale_nan", plant_nan_scale),
    ("scale_infinite", plant_infinite_scale),
    ("scale_negative", plant_negative_scale),
    ("scale_shape", plant_scale_shape),
    ("scale_dtype", plant_integer_scale),
    ("scale_outlier", plant_scale_outlier),
    ("input_scale_missing", plant_missing_input_scale),
    ("kv_pair", plant_half_a_kv_pair),
    ("kv_layers", plant_kv_in_some_layers),
    ("kv_placeholder", plant_kv_placeholders),
    ("looks_fnuz", plant_converted_bytes),
    ("saturated", plant_saturation),
    ("unused_range", plant_unused_range),
    ("all_zero", plant_zeros),
]


@pytest.mark.parametrize(("kind", "plant"), DEFECTS, ids=lambda value: getattr(value, "__name__", value))
def test_a_planted_defect_is_found_where_it_is(tmp_path: Path, kind: str, plant: Callable[[Tensors], None]) -> None:
    tensors = tensor_checkpoint()
    plant(tensors)
    found = [finding for finding in scanned(tmp_path, tensors).findings if finding.kind == kind]
    assert found, f"{kind} was not found"
    if kind not in {"kv_placeholder", "mixed_dialects", "looks_fnuz"}:
        assert all(".3." in finding.tensor or finding.tensor == "layer 3" for finding in found)


GATE = "model.layers.3.mlp.gate_proj"


def wide_checkpoint() -> Tensors:
    """Block FP8 whose matrices are not square, so that a transposed scale has another shape."""
    rng = np.random.default_rng(4)
    tensors: Tensors = {}
    for layer in range(6):
        codes, scales = quantised(rng, (256, 512), 128)
        tensors[f"model.layers.{layer}.mlp.gate_proj.weight"] = ("F8_E4M3", (256, 512), codes)
        tensors[f"model.layers.{layer}.mlp.gate_proj.weight_scale_inv"] = ("F32", scales.shape, float32(scales))
    return tensors


def plant_short_scale(t: Tensors) -> None:
    t[f"{GATE}.weight_scale_inv"] = ("F32", (1, 4), float32([0.001] * 4))


def plant_transposed_scale(t: Tensors) -> None:
    values = np.frombuffer(t[f"{GATE}.weight_scale_inv"][2], "<f4").reshape(2, 4)
    t[f"{GATE}.weight_scale_inv"] = ("F32", (4, 2), values.T.tobytes())


def plant_zeroed_rows(t: Tensors) -> None:
    change(t, f"{GATE}.weight", lambda codes: codes.__setitem__(slice(0, 128 * 512), 0))


def plant_zeroed_block(t: Tensors) -> None:
    change(
        t, f"{GATE}.weight", lambda codes: codes.reshape(256, 512).__setitem__((slice(128, 256), slice(256, 384)), 0)
    )


def plant_long_scale(t: Tensors) -> None:
    t[f"{GATE}.weight_scale_inv"] = ("F32", (3, 4), float32([0.001] * 12))


def plant_finer_scale(t: Tensors) -> None:
    t[f"{GATE}.weight_scale_inv"] = ("F32", (4, 8), float32([0.001 + 0.00001 * n for n in range(32)]))


def plant_constant_scale(t: Tensors) -> None:
    t[f"{GATE}.weight_scale_inv"] = ("F32", (2, 4), float32([1.0] * 8))


def plant_copied_layer(t: Tensors) -> None:
    t[f"{GATE}.weight"] = t["model.layers.2.mlp.gate_proj.weight"]


def plant_lost_layer(t: Tensors) -> None:
    del t[f"{GATE}.weight"], t[f"{GATE}.weight_scale_inv"]


def plant_other_shape(t: Tensors) -> None:
    codes, scales = quantised(np.random.default_rng(9), (128, 512), 128)
    t[f"{GATE}.weight"] = ("F8_E4M3", (128, 512), codes)
    t[f"{GATE}.weight_scale_inv"] = ("F32", scales.shape, float32(scales))


BLOCK_DEFECTS: list[tuple[str, Callable[[Tensors], None]]] = [
    ("scale_shape", plant_short_scale),
    ("scale_shape", plant_transposed_scale),
    ("scale_shape", plant_long_scale),
    ("scale_shape", plant_finer_scale),
    ("zero_block", plant_zeroed_rows),
    ("zero_block", plant_zeroed_block),
    ("scale_constant", plant_constant_scale),
    ("twins", plant_copied_layer),
    ("layer_gap", plant_lost_layer),
    ("shape_differs", plant_other_shape),
]


@pytest.mark.parametrize(("kind", "plant"), BLOCK_DEFECTS, ids=lambda value: getattr(value, "__name__", value))
def test_a_defect_planted_in_block_scaled_weights_is_found(
    tmp_path: Path, kind: str, plant: Callable[[Tensors], None]
) -> None:
    tensors = wide_checkpoint()
    plant(tensors)
    found = [finding for finding in scanned(tmp_path, tensors).findings if finding.kind == kind]
    assert found, f"{kind} was not found"
    assert all(".3." in finding.tensor or "layer 3" in finding.detail for finding in found)


def test_matrices_that_are_not_square_are_sound_too(tmp_path: Path) -> None:
    assert scanned(tmp_path, wide_checkpoint()).findings == ()


def test_zeros_that_the_quantiser_knew_of_are_sound(tmp_path: Path) -> None:
    tensors = wide_checkpoint()
    plant_zeroed_rows(tensors)
    # What a quantiser writes over a block of zeros: next to nothing.
    change(tensors, f"{GATE}.weight_scale_inv", lambda scales: scales.__setitem__(slice(0, 4), 1e-12))
    assert {finding.kind for finding in scanned(tmp_path, tensors).findings} <= {"scale_outlier"}


def test_zeroed_rows_under_one_scale_are_found_too(tmp_path: Path) -> None:
    tensors = tensor_checkpoint()
    change(tensors, f"{LAYER}.mlp.down_proj.weight", lambda codes: codes.__setitem__(slice(0, 128 * 256), 0))
    assert "zero_rows" in {finding.kind for finding in scanned(tmp_path, tensors).findings}


def test_a_tensor_the_index_names_and_no_shard_holds_is_found(tmp_path: Path) -> None:
    tensors = wide_checkpoint()
    files = dict.fromkeys([*tensors, "model.layers.9.mlp.gate_proj.weight"], "model.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}), encoding="utf-8")
    found = scanned(tmp_path, tensors).findings
    assert [(finding.kind, finding.tensor) for finding in found] == [
        ("not_stored", "model.layers.9.mlp.gate_proj.weight")
    ]


def test_bytes_behind_the_last_tensor_are_found(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "model.safetensors", wide_checkpoint())
    with (tmp_path / "model.safetensors").open("ab") as file:
        file.write(bytes(64))
    assert [finding.kind for finding in scan_fp8(tmp_path).findings] == ["unclaimed_bytes"]


@pytest.mark.parametrize("cut", [1, 4096, 100_000])
def test_a_truncated_shard_is_refused_in_one_line(tmp_path: Path, cut: int) -> None:
    write_safetensors(tmp_path / "model.safetensors", wide_checkpoint())
    whole = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[:-cut])
    with pytest.raises(CheckpointError, match="byte range that does not match its shape"):
        scan_fp8(tmp_path)


def test_more_than_25_kinds_of_defects_are_planted_and_found() -> None:
    elsewhere = {
        "orphan_scale",
        "e8m0_top",
        "zero_filled",
        "stored_twice",
        "zero_rows",
        "not_stored",
        "unclaimed_bytes",
    }
    assert len({kind for kind, _ in (*DEFECTS, *BLOCK_DEFECTS)} | elsewhere) >= 25


def test_an_orphan_block_scale_is_found(tmp_path: Path) -> None:
    tensors = block_checkpoint()
    del tensors["model.layers.2.mlp.gate_proj.weight"]
    assert [finding.kind for finding in scanned(tmp_path, tensors).findings] == ["layer_gap", "orphan_scale"]


@pytest.mark.parametrize("byte", [0xFE, 0xFF])
def test_a_power_of_two_scale_that_cannot_be_doubled_is_found(tmp_path: Path, byte: int) -> None:
    tensors = e8m0_checkpoint()
    change(tensors, "layers.2.attn.wq.scale", lambda codes: codes.__setitem__(0, byte))
    found = scanned(tmp_path, tensors)
    assert "e8m0_top" in {finding.kind for finding in found.findings}
    assert found.has_e8m0_top


def test_a_tensor_in_two_files_and_a_hole_of_zeros_are_found(tmp_path: Path) -> None:
    big = 3 << 22
    codes = np.tile(np.arange(1, 0x7F, dtype=np.uint8), big // 126 + 1)[:big]
    codes[1 << 22 : 2 << 22] = 0
    tensors: Tensors = {
        "a.0.w.weight": ("F8_E4M3", (big,), codes.tobytes()),
        "a.0.w.weight_scale": ("F32", (1,), float32([0.1])),
    }
    write_safetensors(tmp_path / "model-1.safetensors", tensors)
    write_safetensors(tmp_path / "model-2.safetensors", {"a.0.w.weight_scale": tensors["a.0.w.weight_scale"]})
    kinds = {finding.kind for finding in scan_fp8(tmp_path).findings}
    assert {"zero_filled", "stored_twice"} <= kinds


def test_what_the_other_dialect_reads_is_half(tmp_path: Path) -> None:
    group = scanned(tmp_path, block_checkpoint()).groups[0]
    assert group.largest_value == 448
    assert group.other_largest_value == 224
    assert group.misreading.unconverted == pytest.approx(0.5)
    assert 0 < group.unrepresentable_fraction < 0.05


def test_nan_codes_are_counted_in_every_byte_not_in_the_sample(tmp_path: Path) -> None:
    big = 5 << 22
    codes = np.full(big, 0x38, np.uint8)
    codes[-3:] = 0x7F
    tensors: Tensors = {
        "a.0.w.weight": ("F8_E4M3", (big,), codes.tobytes()),
        "a.0.w.weight_scale": ("F32", (1,), float32([0.1])),
    }
    found = scanned(tmp_path, tensors)
    assert found.groups[0].nan_codes == 3
    assert found.has_nan_codes


HOSTILE: dict[str, bytes] = {
    "not json": b"{",
    "not an object": b"[]",
    "overlap": json.dumps(
        {
            "a": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]},
            "b": {"dtype": "U8", "shape": [8], "data_offsets": [4, 12]},
        }
    ).encode(),
    "beyond the file": json.dumps({"a": {"dtype": "U8", "shape": [99], "data_offsets": [0, 99]}}).encode(),
    "huge": json.dumps({"a": {"dtype": "U8", "shape": [2**60], "data_offsets": [0, 2**60]}}).encode(),
    "negative": json.dumps({"a": {"dtype": "U8", "shape": [-1], "data_offsets": [0, -1]}}).encode(),
    "unknown dtype": json.dumps({"a": {"dtype": "F7", "shape": [1], "data_offsets": [0, 1]}}).encode(),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_header_is_refused_in_one_line(tmp_path: Path, kind: str) -> None:
    write_safetensors(tmp_path / "model.safetensors", {"x": ("U8", (16,), bytes(16))}, HOSTILE[kind])
    with pytest.raises(CheckpointError) as refused:
        scan_fp8(tmp_path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["../outside.safetensors", "/etc/passwd", "a/b.safetensors", "x\u0000.safetensors"])
def test_an_index_that_points_elsewhere_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    index = {"weight_map": {"a": name}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError) as refused:
        scan_fp8(tmp_path)
    assert "\n" not in str(refused.value)


def test_a_length_that_exceeds_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes((2**62).to_bytes(8, "little") + b"{}")
    with pytest.raises(CheckpointError, match="not a safetensors file, or cut"):
        scan_fp8(tmp_path)


def test_a_scale_of_absurd_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    size = 1 << 27
    header = json.dumps({"a.weight_scale": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}).encode()
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + size)
    with pytest.raises(CheckpointError, match="a scale may have at most"):
        scan_fp8(tmp_path)


def mx_checkpoint(label: str, columns: int = 32) -> Tensors:
    """MXFP8: a power of two for each 32 weights of a row, under either label quantisers give it."""
    rng = np.random.default_rng(5)
    tensors: Tensors = {}
    for layer in range(6):
        values = rng.normal(0, 0.02, (256, 256 // columns, columns))
        exponents = np.ceil(np.log2(np.abs(values).max(-1) / 448))
        codes = e4m3fn_codes(values / 2.0 ** exponents[..., None])
        module = f"model.layers.{layer}.mlp.down_proj"
        tensors[f"{module}.weight"] = ("F8_E4M3", (256, 256), codes.tobytes())
        tensors[f"{module}.weight_scale"] = (label, exponents.shape, (exponents + 127).astype(np.uint8).tobytes())
    return tensors


@pytest.mark.parametrize("label", ["F8_E8M0", "U8"])
def test_powers_of_two_are_sound_under_either_label(tmp_path: Path, label: str) -> None:
    # compressed-tensors and vLLM's MXFP8 store e8m0 scales as U8.
    assert scanned(tmp_path, mx_checkpoint(label)).findings == ()


def test_a_byte_that_cannot_be_doubled_is_found_under_either_label(tmp_path: Path) -> None:
    tensors = mx_checkpoint("U8")
    change(tensors, f"{LAYER}.mlp.down_proj.weight_scale", lambda scales: scales.__setitem__(9, 255))
    assert "e8m0_top" in {finding.kind for finding in scanned(tmp_path, tensors).findings}


def test_bytes_that_are_no_scales_of_32_are_integers(tmp_path: Path) -> None:
    tensors = mx_checkpoint("U8", columns=64)
    assert {finding.kind for finding in scanned(tmp_path, tensors).findings} == {"scale_dtype"}


def test_a_config_that_declares_another_block_is_found(tmp_path: Path) -> None:
    for block, expected in ((128, set()), (64, {"declared_block"})):
        config = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [block, block]}}
        (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
        assert {finding.kind for finding in scanned(tmp_path, block_checkpoint()).findings} == expected


def test_one_block_scale_far_above_the_others_is_suspicious(tmp_path: Path) -> None:
    tensors = wide_checkpoint()
    change(tensors, f"{GATE}.weight_scale_inv", lambda scales: scales.__setitem__(3, scales[3] * 1000))
    assert [finding.kind for finding in scanned(tmp_path, tensors).findings] == ["scale_peak"]


def test_a_suspicious_scale_fails_only_a_strict_scan(tmp_path: Path) -> None:
    tensors = wide_checkpoint()
    change(tensors, f"{GATE}.weight_scale_inv", lambda scales: scales.__setitem__(3, scales[3] * 1000))
    scanned(tmp_path, tensors)
    scan_command(str(tmp_path), as_json=True)
    with pytest.raises(click.exceptions.Exit):
        scan_command(str(tmp_path), strict=True, as_json=True)


def test_scales_stored_as_reciprocals_are_found(tmp_path: Path) -> None:
    tensors = block_checkpoint()
    for name in [name for name in tensors if name.endswith("scale_inv")]:
        change(tensors, name, lambda scales: np.divide(1.0, scales, out=scales))
    kinds = {finding.kind for finding in scanned(tmp_path, tensors).findings}
    assert kinds == {"scale_magnitude"}


@pytest.mark.parametrize("layers", [4, 12])
def test_scales_of_one_layer_sixteen_times_too_large_are_suspicious(tmp_path: Path, layers: int) -> None:
    tensors = block_checkpoint(layers=layers)
    change(tensors, "model.layers.1.mlp.gate_proj.weight_scale_inv", lambda scales: np.multiply(scales, 16, out=scales))
    assert [finding.kind for finding in scanned(tmp_path, tensors).findings] == ["scale_outlier"]


def test_a_layer_lost_in_a_small_model_is_found(tmp_path: Path) -> None:
    tensors = block_checkpoint(layers=4)
    for name in [name for name in tensors if name.startswith("model.layers.1.mlp")]:
        del tensors[name]
    assert [finding.kind for finding in scanned(tmp_path, tensors).findings] == ["layer_gap"]


def test_a_layer_kept_in_another_dtype_is_no_gap(tmp_path: Path) -> None:
    tensors = block_checkpoint(layers=4)
    del tensors["model.layers.1.mlp.gate_proj.weight_scale_inv"]
    tensors["model.layers.1.mlp.gate_proj.weight"] = ("BF16", (256, 256), bytes(2 * 256 * 256))
    assert scanned(tmp_path, tensors).findings == ()


def test_a_projection_copied_over_its_neighbour_is_suspicious(tmp_path: Path) -> None:
    tensors = block_checkpoint()
    for ending in ("weight", "weight_scale_inv"):
        tensors[f"{LAYER}.mlp.gate_proj.{ending}"] = tensors[f"{LAYER}.self_attn.o_proj.{ending}"]
    assert "twins" in {finding.kind for finding in scanned(tmp_path, tensors).findings}


@pytest.mark.parametrize("rows", [1, 5])
def test_zeroed_rows_are_suspicious_however_few(tmp_path: Path, rows: int) -> None:
    tensors = wide_checkpoint()
    columns = tensors[f"{GATE}.weight"][1][1]
    change(tensors, f"{GATE}.weight", lambda codes: codes.__setitem__(slice(9 * columns, (9 + rows) * columns), 0))
    assert [finding.kind for finding in scanned(tmp_path, tensors).findings] == ["zero_rows"]


def set_scales(tensors: Tensors, name: str, change: Callable[[NDArray[np.float64]], object]) -> None:
    dtype, shape, raw = tensors[name]
    values = np.frombuffer(raw, "<f4").astype(np.float64)
    change(values)
    tensors[name] = (dtype, shape, float32(values.astype(np.float32)))


def median_of_layers(tensors: Tensors, suffix: str) -> float:
    found = [np.frombuffer(raw, "<f4")[0] for name, (_, _, raw) in tensors.items() if name.endswith(suffix)]
    return float(np.median(found))


@pytest.mark.parametrize(("ratio", "seen"), [(11.9, False), (12.1, True), (1 / 11.9, False), (1 / 12.1, True)])
def test_a_tensors_scale_is_seen_beyond_12_times_the_median_of_other_layers(
    tmp_path: Path, ratio: float, *, seen: bool
) -> None:
    tensors, suffix = tensor_checkpoint(layers=7), "mlp.down_proj.weight_scale"
    middle = median_of_layers(tensors, suffix)
    # An even number of others lies on both sides of the median, which therefore stays.
    largest = max(range(7), key=lambda layer: np.frombuffer(tensors[f"model.layers.{layer}.{suffix}"][2], "<f4")[0])
    smallest = min(range(7), key=lambda layer: np.frombuffer(tensors[f"model.layers.{layer}.{suffix}"][2], "<f4")[0])
    layer = largest if ratio > 1 else smallest
    set_scales(tensors, f"model.layers.{layer}.{suffix}", lambda values: values.__setitem__(0, middle * ratio))
    found = scanned(tmp_path, tensors).findings
    assert ("scale_outlier" in {finding.kind for finding in found}) is seen


def test_three_layers_are_too_few_to_compare(tmp_path: Path) -> None:
    tensors = tensor_checkpoint(layers=3)
    set_scales(tensors, "model.layers.1.mlp.down_proj.weight_scale", lambda values: values.__imul__(40))
    assert scanned(tmp_path, tensors).findings == ()


@pytest.mark.parametrize(
    ("places", "ratio", "seen"),
    [((3,), 99, False), ((3,), 101, True), ((3,), 1e-8, False), ((3, 5), 1000, False)],
    ids=["within 100 times", "beyond 100 times", "too small", "several"],
)
def test_one_block_scale_is_seen_beyond_100_times_the_median_of_its_tensor(
    tmp_path: Path, places: tuple[int, ...], ratio: float, *, seen: bool
) -> None:
    tensors = block_checkpoint(width=512)

    def plant(values: NDArray[np.float64]) -> None:
        order, middle = np.argsort(values), float(np.median(values))
        for place in places:
            values[order[-place] if ratio > 1 else order[place]] = middle * ratio

    set_scales(tensors, "model.layers.1.mlp.gate_proj.weight_scale_inv", plant)
    kinds = {finding.kind for finding in scanned(tmp_path, tensors).findings}
    assert ("scale_peak" in kinds) is seen
    assert kinds <= {"scale_peak"}
