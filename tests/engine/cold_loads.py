"""How long does a real engine take to start, to read its weights again, and to load LoRA adapters?

Record: `PYTHONPATH=tests python -m engine.cold_loads FILE FOLDER [ROUNDS]`. Before each load, the files are dropped
from the page cache, so that the disk is read. Each engine has one core, also while it starts.
"""

import json
import os
import re
import shutil
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from engine.server import Server, Settings, serve_folder
from engine.tiny_llama import Shape, write_model, write_safetensors

SHAPES: Final = (
    Shape(),
    Shape(hidden_size=1024, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=16),
    Shape(hidden_size=1536, intermediate_size=4608, num_hidden_layers=16, num_attention_heads=24),
    Shape(hidden_size=2048, intermediate_size=6144, num_hidden_layers=20, num_attention_heads=32),
)
"""Models of 67 MB to 2 GB."""
SETTINGS: Final = Settings(kv_cache_blocks=64)
ADAPTED: Final = 1
"""The shape that adapters are loaded into."""
RANKS: Final = (8, 32, 64, 128, 256)
_PIECE: Final = 2**22
_LOADING: Final = re.compile(r"Loading weights took (\d+\.\d+) seconds")


def drop(path: Path) -> None:
    """Forget the pages of a file, so that the next read is from the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def disk_bytes_per_s(path: Path) -> float:
    """Return the rate of reading a file that is not in the page cache."""
    drop(path)
    begun_s = time.perf_counter()
    read = 0
    with path.open("rb", buffering=0) as file:
        while piece := file.read(_PIECE):
            read += len(piece)
    return read / (time.perf_counter() - begun_s)


def post(server: Server, path: str, body: object) -> float:
    """Return the seconds until the answer."""
    begun_s = time.perf_counter()
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}{path}",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=300):  # noqa: S310 - loopback
        return time.perf_counter() - begun_s


def write_adapter(folder: Path, shape: Shape, rank: int, base: str = "tiny") -> int:
    """Write a LoRA adapter for all seven projections, and return the bytes of its weights.

    vLLM finds an adapter in a folder only if `base` is the path of the model that it serves.
    """
    folder.mkdir(parents=True)
    hidden, inner = shape.hidden_size, shape.intermediate_size
    queries, keys = shape.num_attention_heads * shape.head_dim, shape.num_key_value_heads * shape.head_dim
    sizes = {
        "self_attn.q_proj": (hidden, queries),
        "self_attn.k_proj": (hidden, keys),
        "self_attn.v_proj": (hidden, keys),
        "self_attn.o_proj": (queries, hidden),
        "mlp.gate_proj": (hidden, inner),
        "mlp.up_proj": (hidden, inner),
        "mlp.down_proj": (inner, hidden),
    }
    random = np.random.default_rng(rank)
    tensors = {}
    for layer in range(shape.num_hidden_layers):
        for module, (inputs, outputs) in sizes.items():
            at = f"base_model.model.model.layers.{layer}.{module}"
            tensors[f"{at}.lora_A.weight"] = random.standard_normal((rank, inputs), dtype=np.float32)
            tensors[f"{at}.lora_B.weight"] = random.standard_normal((outputs, rank), dtype=np.float32)
    write_safetensors(folder / "adapter_model.safetensors", tensors)
    config = {
        "peft_type": "LORA",
        "base_model_name_or_path": base,
        "task_type": "CAUSAL_LM",
        "r": rank,
        "lora_alpha": rank,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": sorted({module.partition(".")[2] for module in sizes}),
    }
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    return sum(2 * tensor.size for tensor in tensors.values())


def models(folder: Path) -> list[Path]:
    """Write the models that are not there yet: two minutes."""
    found = [folder / f"model-{number}" for number in range(len(SHAPES))]
    for place, shape in zip(found, SHAPES, strict=True):
        if not (place / "model.safetensors").exists():
            write_model(place, shape)
    return found


def record_start(python: str, model: Path, shape: Shape) -> Iterator[dict[str, Any]]:
    """Yield the time of a start with a cold file, and then those of reading the weights again in the live engine."""
    weights = model / "model.safetensors"
    size, rate = weights.stat().st_size, disk_bytes_per_s(weights)
    drop(weights)
    begun_s = time.perf_counter()
    with serve_folder(python, SETTINGS, shape=shape, model=model, one_core=True) as server:
        seconds = time.perf_counter() - begun_s
        found = _LOADING.search(server.log.read_text(encoding="utf-8"))
        yield {
            "kind": "start",
            "bytes": size,
            "seconds": seconds,
            "loading_s": None if found is None else float(found[1]),
            "disk_bytes_per_s": rate,
        }
        for _ in range(3):
            rate = disk_bytes_per_s(weights)
            drop(weights)
            reading_s = post(server, "/collective_rpc", {"method": "reload_weights"})
            yield {"kind": "reload", "bytes": size, "seconds": reading_s, "disk_bytes_per_s": rate}
            if server.answer([5, 6, 7])["usage"]["completion_tokens"] != 4:
                raise RuntimeError("the engine does not answer after it read its weights again")


def record_adapters(python: str, model: Path, shape: Shape) -> Iterator[dict[str, Any]]:
    """Yield the time to load adapters of several ranks, and the time to the first answer with each."""
    extra = ["--enable-lora", "--max-lora-rank", str(max(RANKS)), "--max-loras", "2", "--max-cpu-loras", "32"]
    with serve_folder(
        python,
        SETTINGS,
        shape=shape,
        model=model,
        extra=extra,
        variables={"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"},
        one_core=True,
    ) as server:
        for number in range(3):
            for rank in RANKS:
                name = f"r{rank}-{number}"
                folder = model.parent / name
                shutil.rmtree(folder, ignore_errors=True)
                size = write_adapter(folder, shape, rank)
                weights = folder / "adapter_model.safetensors"
                rate = disk_bytes_per_s(weights)
                drop(weights)
                seconds = post(server, "/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})
                body = {"model": name, "prompt": [5, 6, 7], "max_tokens": 1, "ignore_eos": True}
                first_s, again_s = (post(server, "/v1/completions", body) for _ in range(2))
                yield {
                    "kind": "adapter",
                    "rank": rank,
                    "bytes": size,
                    "seconds": seconds,
                    "first_answer_s": first_s,
                    "second_answer_s": again_s,
                    "disk_bytes_per_s": rate,
                }
                shutil.rmtree(folder)


def main(file: str, folder: Path, rounds: int) -> None:
    python = os.environ["PENSTOCK_VLLM"]
    rows: list[dict[str, Any]] = []

    def keep(row: dict[str, Any]) -> None:
        rows.append({name: round(value, 4) if isinstance(value, float) else value for name, value in row.items()})
        sys.stdout.write(f"{rows[-1]}\n")
        sys.stdout.flush()
        Path(file).write_text(json.dumps(rows, indent=0), encoding="utf-8")

    found = models(folder)
    for _ in range(rounds):
        for place, shape in zip(found, SHAPES, strict=True):
            for row in record_start(python, place, shape):
                keep(row)
    for row in record_adapters(python, found[ADAPTED], SHAPES[ADAPTED]):
        keep(row)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int((*sys.argv, "1")[3]))
