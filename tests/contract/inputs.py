"""Writes the input files that are longer as a file than as code: load results, receipts, checkpoints, releases."""

import json
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

BEGUN_S: Final = 1_793_491_200.0
"""2026-11-01 00:00 UTC"""
ADDRESSES: Final = {"h100": ("10.0.0.1:8000", "10.0.0.2:8000"), "mi300x": ("10.0.0.3:8000", "10.0.0.4:8000")}
LLAMA: Final = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 256,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 1024,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
}


def write_inputs(folder: Path) -> None:
    """Write all of them."""
    for users, ttft_s, gap_s in ((1, 0.03, 0.0062), (8, 0.05, 0.008), (32, 0.11, 0.0115)):
        _write(folder / f"vllm-{users}.json", json.dumps(load_result(users, ttft_s, gap_s)))
    _write(folder / "vllm-early.json", json.dumps(load_result(8, 0.05, 0.008) | {"completed": 41, "failed": 23}))
    _write(folder / "ended.jsonl", _lines(*ended_requests()))
    _write(
        folder / "metered.jsonl", _lines(meter(0.0, 500.0, 70.0), *ended_requests(), meter(300.0, 90_500.0, 6_070.0))
    )
    for name, scale in (("sound", 0.001), ("zero-scale", 0.0), ("nan-scale", float("nan"))):
        checkpoint = folder / name
        checkpoint.mkdir(exist_ok=True)
        _write(checkpoint / "config.json", json.dumps(LLAMA))
        (checkpoint / "model.safetensors").write_bytes(fp8_checkpoint(scale))
    (folder / "all-codes.safetensors").write_bytes(
        fp8_tensor(bytes(code for code in range(256) if code % 128 != 127) * 65, 1.0)
    )
    (folder / "one-nan.safetensors").write_bytes(fp8_tensor(bytes([0x38] * 16_383 + [0x7F]), 1.0))
    unread = folder / "unread"
    unread.mkdir(exist_ok=True)
    _write(unread / "config.json", json.dumps({"architectures": ["NewThingForCausalLM"], "model_type": "newthing"}))
    write_wheel(folder / "vllm-0.40.0-cp38-abi3-manylinux1_x86_64.whl", vllm_files())
    write_wheel(folder / "vllm-0.41.0-cp38-abi3-manylinux1_x86_64.whl", vllm_files("new-setting"))


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _lines(*entries: Mapping[str, object]) -> str:
    return "".join(json.dumps(entry) + "\n" for entry in entries)


def load_result(users: int, ttft_s: float, gap_s: float) -> dict[str, object]:
    """Return a result as `vllm bench serve` writes it: 64 requests of 512 and 128 tokens."""
    tokens, requests = 128, 64
    latency_s = ttft_s + gap_s * (tokens - 1)
    statistics = {
        f"{kind}_{name}_ms": 1000 * value
        for name, value in (("ttft", ttft_s), ("tpot", gap_s), ("itl", gap_s), ("e2el", latency_s))
        for kind in ("mean", "median", "p99")
    }
    return {
        "date": "20261101-120000",
        "endpoint_type": "openai",
        "model_id": "meta-llama/Llama-3.1-8B-Instruct",
        "num_prompts": requests,
        "completed": requests,
        "failed": 0,
        "request_rate": "inf",
        "max_concurrency": users,
        "duration": latency_s * requests / users,
        "total_input_tokens": 512 * requests,
        "total_output_tokens": tokens * requests,
        "start_times": [latency_s * (place // users) for place in range(requests)],
        "input_lens": [512] * requests,
        "output_lens": [tokens] * requests,
        "ttfts": [ttft_s] * requests,
        "itls": [[gap_s] * (tokens - 1)] * requests,
        **statistics,
    }


def ended(at_s: float, **more: object) -> Mapping[str, object]:
    """Return the receipt of a request that ended `at_s` seconds after the first of November."""
    usual = {
        "ended_unix_s": BEGUN_S + at_s,
        "tenant": "search",
        "model": "llama-3.1-8b",
        "class": "chat",
        "request_bytes": 4000,
        "input_tokens": 1000,
        "pool": "h100",
        "endpoint": ADDRESSES["h100"][0],
        "status": 200,
        "failed": False,
        "duration_s": 2.0,
        "waited_s": 0.0,
        "ttft_s": None,
        "cached_tokens": 0,
        "output_tokens": 100,
        "tokens_from": "bytes",
        "prompt_from": "bytes",
        "response_bytes": 23_000,
        "streamed": True,
        "kept": True,
    }
    return {"version": 3, "ended": usual | more}


def meter(at_s: float, prompt: float, output: float) -> Mapping[str, object]:
    """Return the counters of the first endpoint's engine."""
    return {"version": 3, "meter": {"at_unix_s": BEGUN_S + at_s, "tokens": {ADDRESSES["h100"][0]: [prompt, output]}}}


def ended_requests() -> list[Mapping[str, object]]:
    """Return receipts of three tenants on both pools: kept, missed, cached, refused, failed and left."""
    other, refused = ADDRESSES["mi300x"][0], {"pool": "", "endpoint": "", "duration_s": 0.0, "output_tokens": 0}
    return [
        *(ended(100.0 + number, input_tokens=900 + 7 * number) for number in range(20)),
        *(
            ended(105.5 + 3 * number, tenant="batch", pool="mi300x", endpoint=other, duration_s=4.0)
            for number in range(6)
        ),
        *(ended(110.25 + number, tenant="", output_tokens=200, cached_tokens=512, ttft_s=0.08) for number in range(4)),
        ended(120.0, kept=False, ttft_s=1.5),
        ended(121.0, kept=None),
        ended(122.0, status=429, kept=False, **refused),
        ended(123.0, status=503, kept=False, output_tokens=0, tenant="batch"),
        ended(124.0, status=404, kept=None, output_tokens=0),
        ended(125.0, failed=True, kept=False, tenant="batch"),
        ended(126.0, tokens_from="engine", prompt_from="engine", input_tokens=7777, tenant="exact"),
    ]


def safetensors(tensors: Mapping[str, tuple[str, list[int], bytes]]) -> bytes:
    """Return a file in the safetensors format."""
    header, offset = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values())


def fp8_tensor(codes: bytes, scale: float) -> bytes:
    """Return one square FP8 tensor with the first 128 by 128 of these codes, and one scale."""
    return safetensors(
        {
            "layer.weight": ("F8_E4M3", [128, 128], codes[: 128 * 128]),
            "layer.weight_scale_inv": ("F32", [1, 1], struct.pack("<f", scale)),
        }
    )


def fp8_checkpoint(first_scale: float) -> bytes:
    """Return the linear layers of a two-layer Llama in blocks of 128, one of whose scales is given."""
    shapes = {"q_proj": (256, 256), "k_proj": (128, 256), "v_proj": (128, 256), "o_proj": (256, 256)}
    tensors: dict[str, tuple[str, list[int], bytes]] = {}
    for layer in range(2):
        for place, (name, (rows, columns)) in enumerate(shapes.items()):
            base = f"model.layers.{layer}.self_attn.{name}"
            # Codes of about a bell: 0x30 is 0.5, 0x38 is 1.
            cycle = (0x08, 0x20, 0x30, 0x38, 0x88, 0xA0, 0xB0, 0x7E)
            codes = bytes(cycle[(at * at + 3 * layer + place) % 8] for at in range(rows * columns))
            number = rows * columns // 128**2
            scales = [0.001 * (1 + layer / 8 + at / 16) for at in range(number)]
            if layer == place == 0:
                scales[0] = first_scale
            tensors[f"{base}.weight"] = ("F8_E4M3", [rows, columns], codes)
            tensors[f"{base}.weight_scale_inv"] = (
                "F32",
                [rows // 128, columns // 128],
                struct.pack(f"<{number}f", *scales),
            )
    return safetensors(tensors)


def vllm_files(*flags: str) -> dict[str, str]:
    """Return the files of a small vLLM: its parser, registries, variables and defaults."""
    names = (*(f"setting-{number}" for number in range(60)), *flags)
    added = "\n".join(f'        group.add_argument("--{flag}", type=int)' for flag in names)
    return {
        "vllm/engine/arg_utils.py": f"import argparse\nclass EngineArgs:\n    def add_cli_args(group):\n{added}\n"
        "        action = argparse.BooleanOptionalAction\n",
        "vllm/entrypoints/openai/cli_args.py": "class FrontendArgs:\n    host: str\n    tool_call_parser: str\n",
        "vllm/utils/argparse_utils.py": "class FlexibleArgumentParser: ...\n",
        "vllm/envs.py": 'environment_variables = {\n    "VLLM_FAST": lambda: 1,\n}\n',
        "vllm/config/cache.py": 'from typing import Literal\nCacheDType = Literal["auto", "fp8"]\n'
        "class CacheConfig:\n    gpu_memory_utilization: float = Field(default=0.92, gt=0)\n",
        "vllm/config/model.py": 'TokenizerMode = Literal["auto", "slow"]\n',
        "vllm/model_executor/models/registry.py": '_MODELS = {\n    "LlamaForCausalLM": ("llama", "Llama"),\n}\n',
        "vllm/v1/attention/backends/registry.py": 'class AttentionBackendEnum:\n    FLASH_ATTN = "a"\n    MINE = "b"\n',
        "vllm/tool_parsers/__init__.py": '_PARSERS = {\n    "hermes": (\n        "a",\n    ),\n}\n',
    }


def write_wheel(path: Path, files: Mapping[str, str]) -> None:
    """Write a wheel whose bytes are always the same."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as wheel:
        for name, text in files.items():
            wheel.writestr(zipfile.ZipInfo(name, (2026, 11, 1, 0, 0, 0)), text)
