"""Safetensors files for tests: sound FP8 checkpoints, and the ways to spoil one."""

import json
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Tensor = tuple[str, tuple[int, ...], bytes]
Tensors = dict[str, Tensor]


def write_safetensors(path: Path, tensors: Tensors, header: bytes | None = None) -> None:
    """Write the format by hand: a length, a JSON header, the bytes."""
    described, offset = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        described[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = header if header is not None else json.dumps(described).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            file.write(data)


def e4m3fn_codes(values: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Round to the nearest E4M3FN code, as quantisers do: ties to even, negative zero kept."""
    import ml_dtypes  # noqa: PLC0415 - the reference, not the code under test

    return np.clip(values, -448, 448).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)


def quantised(rng: np.random.Generator, shape: tuple[int, int], block: int | None) -> tuple[bytes, NDArray[np.float32]]:
    """A random matrix with its scales: per tensor, or per square block."""
    # Heavy tails, as trained weights have: most values are far below the largest.
    values = 0.02 * rng.standard_t(3, shape)
    if block is None:
        scale = np.array([np.abs(values).max() / 448], np.float32)
        return e4m3fn_codes(values / scale[0]).tobytes(), scale
    rows, columns = -(-shape[0] // block), -(-shape[1] // block)
    scales = np.zeros((rows, columns), np.float32)
    codes = np.zeros(shape, np.uint8)
    for row in range(rows):
        for column in range(columns):
            part = (slice(row * block, (row + 1) * block), slice(column * block, (column + 1) * block))
            scales[row, column] = np.abs(values[part]).max() / 448
            codes[part] = e4m3fn_codes(values[part] / scales[row, column])
    return codes.tobytes(), scales


def float32(values: NDArray[np.float32] | list[float]) -> bytes:
    return np.asarray(values, "<f4").tobytes()


def tensor_checkpoint(layers: int = 6, width: int = 256, seed: int = 0) -> Tensors:
    """Per-tensor FP8 with static input scales and KV scales, as ModelOpt and compressed-tensors export."""
    rng = np.random.default_rng(seed)
    tensors: Tensors = {}
    for layer in range(layers):
        for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.down_proj"):
            module = f"model.layers.{layer}.{name}"
            codes, scale = quantised(rng, (width, width), None)
            tensors[f"{module}.weight"] = ("F8_E4M3", (width, width), codes)
            tensors[f"{module}.weight_scale"] = ("F32", (1,), float32(scale))
            tensors[f"{module}.input_scale"] = ("F32", (1,), float32([0.02 + 0.01 * rng.random()]))
        for name in ("k", "v"):
            values = float32([0.05 + 0.05 * rng.random()])
            tensors[f"model.layers.{layer}.self_attn.{name}_proj.{name}_scale"] = ("F32", (1,), values)
        tensors[f"model.layers.{layer}.input_layernorm.weight"] = ("BF16", (width,), bytes(2 * width))
    return tensors


def block_checkpoint(layers: int = 6, width: int = 256, seed: int = 1) -> Tensors:
    """Block FP8 with float32 scales, as DeepSeek and Qwen publish."""
    rng = np.random.default_rng(seed)
    tensors: Tensors = {}
    for layer in range(layers):
        for name in ("self_attn.o_proj", "mlp.gate_proj"):
            codes, scales = quantised(rng, (width, width), 128)
            module = f"model.layers.{layer}.{name}"
            tensors[f"{module}.weight"] = ("F8_E4M3", (width, width), codes)
            tensors[f"{module}.weight_scale_inv"] = ("F32", scales.shape, float32(scales))
    return tensors


def e8m0_checkpoint(layers: int = 6, width: int = 256, seed: int = 2) -> Tensors:
    """Block FP8 with one-byte power-of-two scales, as DeepSeek-V4 publishes."""
    rng = np.random.default_rng(seed)
    tensors: Tensors = {}
    for layer in range(layers):
        values = rng.normal(0, 0.02, (width, width))
        exponents = np.full((2, 2), 127 + int(np.ceil(np.log2(np.abs(values).max() / 448))), np.uint8)
        codes = e4m3fn_codes(values / np.ldexp(1.0, int(exponents[0, 0]) - 127))
        module = f"layers.{layer}.attn.wq"
        tensors[f"{module}.weight"] = ("F8_E4M3", (width, width), codes.tobytes())
        tensors[f"{module}.scale"] = ("F8_E8M0", (2, 2), exponents.tobytes())
    return tensors
