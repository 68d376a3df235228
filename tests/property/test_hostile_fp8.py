"""A damaged or hostile FP8 checkpoint ends in a scan or in one named line, whatever was done to its bytes."""

import json
import random
from pathlib import Path

import pytest

from fp8_checkpoints import e8m0_checkpoint, tensor_checkpoint, write_safetensors
from penstock.checkpoint.fp8.scan import scan_fp8
from penstock.errors import PenstockError

CASES = 150
VALUES: tuple[object, ...] = (None, -1, 0, 2**63, 1.5, "x", [], [0, 0], [8, 4], [0, 2**62], {}, "F8_E4M3", "F8_E8M0")


def outcome(path: Path) -> str:
    try:
        scan_fp8(path)
    except PenstockError as error:
        return "refused" if str(error).isprintable() and len(str(error)) < 400 else f"refused badly: {error}"
    return "scanned"


@pytest.mark.parametrize("seed", range(2))
def test_flipped_cut_and_grown_files(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    path = tmp_path / "model.safetensors"
    write_safetensors(path, e8m0_checkpoint(layers=4, width=128))
    sound, seen = path.read_bytes(), set[str]()
    for _ in range(CASES):
        damaged = bytearray(sound)
        for _ in range(rng.choice((1, 1, 4, 32))):
            damaged[rng.randrange(min(len(damaged), 2000))] = rng.randrange(256)
        cut = rng.choice((len(damaged), len(damaged), rng.randrange(len(damaged))))
        path.write_bytes(bytes(damaged[:cut]) + bytes(rng.choice((0, 0, 17))))
        seen.add(outcome(path))
    assert seen == {"refused", "scanned"}


def test_headers_with_any_value_in_any_place(tmp_path: Path) -> None:
    rng = random.Random(3)
    path = tmp_path / "model.safetensors"
    tensors = tensor_checkpoint(layers=2, width=128)
    write_safetensors(path, tensors)
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header, data = json.loads(raw[8 : 8 + length]), raw[8 + length :]
    for _ in range(CASES):
        changed = json.loads(json.dumps(header))
        name = rng.choice(list(changed))
        changed[name][rng.choice(("dtype", "shape", "data_offsets"))] = rng.choice(VALUES)
        if rng.random() < 0.3:
            changed["\u0000../../x\n" * rng.choice((1, 50))] = changed.pop(name)
        text = json.dumps(changed).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + data)
        assert outcome(path) in {"refused", "scanned"}
