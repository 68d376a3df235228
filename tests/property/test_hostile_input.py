"""Untrusted files: whatever is in them, reading ends in a spec or in one named error, quickly and in little memory."""

import json
import random
import resource
import struct
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from effort import fuzz_cases
from examples import deployment
from penstock.catalog import find_model, model_ids
from penstock.checkpoint.safetensors.header import parse_header, read_header
from penstock.errors import CheckpointError, ConfigError, PenstockError
from penstock.model import read_config
from penstock.performance import fit

CASES = fuzz_cases(12_000, 120_000)
"""Split between configs and headers; `make fuzz` runs a million."""

VALUES: list[object] = [
    None,
    True,
    False,
    0,
    -1,
    1,
    2,
    3,
    7,
    64,
    10**6,
    2**31,
    2**63,
    10**30,
    -(10**30),
    0.5,
    1e300,
    float("inf"),
    float("nan"),
    "",
    "x",
    "re:(a+)+$",
    "re:(?!x)",
    "*" * 40,
    "\x00\ud800",
    [],
    {},
    [1, 2, 3],
    ["full_attention"] * 3,
    [[[[]]]],
    {"a": {"b": {}}},
    {"quant_method": "fp8"},
    ["LlamaForCausalLM"],
]


def seeds() -> list[dict[str, Any]]:
    return [dict(find_model(ident).config) for ident in model_ids()]


def mutate(random_: random.Random, value: Any, depth: int = 0) -> Any:  # noqa: ANN401 - any JSON value
    """Change a few places of a JSON value: replace, drop, duplicate or nest."""
    if isinstance(value, dict) and value and depth < 4:
        changed = dict(value)
        for _ in range(random_.choice((1, 1, 1, 2, 3))):
            key = random_.choice(list(changed) or ["x"])
            action = random_.random()
            if action < 0.2:
                changed.pop(key, None)
            elif action < 0.6:
                changed[key] = random_.choice(VALUES)
            elif action < 0.7:
                changed[random_.choice(("quantization_config", "text_config", "layer_types", key))] = random_.choice(
                    VALUES
                )
            else:
                changed[key] = mutate(random_, changed.get(key), depth + 1)
        return changed
    if isinstance(value, list) and value and depth < 4:
        changed_list = list(value)
        at = random_.randrange(len(changed_list))
        changed_list[at] = mutate(random_, changed_list[at], depth + 1)
        return changed_list if random_.random() < 0.8 else changed_list[:at]
    if isinstance(value, int) and not isinstance(value, bool) and random_.random() < 0.5:
        return random_.choice((value + 1, value * 3, value // 2, -value, value * 10**6))
    return random_.choice(VALUES)


def test_mutated_configs_end_in_a_spec_or_a_named_error() -> None:
    random_ = random.Random(20261114)
    known = seeds()
    accepted, messages = 0, {1}
    for _ in range(CASES * 2 // 3):
        config = mutate(random_, random_.choice(known))
        data = json.dumps(config).encode()
        if random_.random() < 0.1:
            at = random_.randrange(len(data))
            data = data[:at] + bytes([random_.randrange(256)]) + data[at + random_.randrange(3) :]
        try:
            spec = read_config(data, "hostile")
        except ConfigError as error:
            messages.add(len(str(error)))
        else:
            accepted += 1
            assert spec.total_params >= 0
            assert spec.weight_bytes >= 0
            if accepted % 20 == 0:
                # What was accepted must also be plannable: any number, never a crash.
                fit(deployment(spec, "mi300x", tp=random_.choice((1, 2, 8)), pp=random_.choice((1, 3))), 4096)
    # Most single changes leave a readable config: the fuzzer reaches past the first check.
    assert accepted > CASES // 20
    assert 0 < min(messages) <= max(messages) < 600


def header(random_: random.Random) -> bytes:
    tensors: dict[str, Any] = {}
    offset = 0
    for number in range(random_.randrange(6)):
        shape = [random_.choice((0, 1, 3, 128)) for _ in range(random_.randrange(4))]
        size = 2
        for extent in shape:
            size *= extent
        tensors[f"model.layers.{number}.weight"] = {
            "dtype": random_.choice(("BF16", "F16")),
            "shape": shape,
            "data_offsets": [offset, offset + size],
        }
        offset += size
    if random_.random() < 0.7:
        tensors = mutate(random_, tensors)
    data = json.dumps(tensors).encode()
    if data and random_.random() < 0.3:
        at = random_.randrange(len(data))
        data = data[:at] + bytes([random_.randrange(256)]) + data[at + 1 :]
    return data


def test_mutated_headers_end_in_tensors_or_a_named_error() -> None:
    random_ = random.Random(41120262)
    accepted, messages = 0, {1}
    for _ in range(CASES // 3):
        data = header(random_)
        try:
            tensors = parse_header(data, data_bytes=10**7, where="hostile.safetensors")
        except CheckpointError as error:
            messages.add(len(str(error)))
        else:
            accepted += 1
            assert all(tensor.stored_bytes >= 0 for tensor in tensors)
    assert accepted > CASES // 30
    assert 0 < min(messages) <= max(messages) < 600


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"{" * 100_000,
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        b'{"hidden_size": ' + b"9" * 100_000 + b"}",
        b"\xff\xfe\x00",
        b'{"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1000000000}',
        b'{"architectures": [' + b'"x",' * 200_000 + b'"y"]}',
        b'{"architectures": ["' + b"A" * 1_000_000 + b'"]}',
    ],
)
def test_malformed_and_huge_configs_are_refused_quickly(data: bytes) -> None:
    began = time.process_time()
    with pytest.raises(ConfigError):
        read_config(data, "hostile")
    assert time.process_time() - began < 2


def test_an_endless_config_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(ConfigError, match="at most"):
        read_config(b" " * (17 * 2**20), "hostile")


@pytest.mark.parametrize("length", [0, 1, 7, 2**31, 2**63 - 1, 2**64 - 1])
def test_a_header_that_claims_more_than_the_file_is_refused_without_reading_it(tmp_path: Path, length: int) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", length) + b"{}")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CheckpointError):
        read_header(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_an_ignore_list_as_long_as_a_real_one_stays_cheap() -> None:
    config = dict(find_model("glm-5-fp8").config)
    section = dict(config["quantization_config"])
    section["modules_to_not_convert"] = [f"model.layers.{n}.x" for n in range(20_000)]
    began = time.process_time()
    read_config(json.dumps({**config, "quantization_config": section}).encode(), "long")
    assert time.process_time() - began < 5


def test_the_widest_layer_count_is_read_in_bounded_time() -> None:
    config = dict(find_model("llama-3.1-8b").config)
    began = time.process_time()
    read_config(json.dumps({**config, "num_hidden_layers": 1024}).encode(), "deep")
    assert time.process_time() - began < 2


def test_data_files_are_where_the_fuzzer_takes_its_seeds() -> None:
    assert (files("penstock.catalog") / "data" / "models").is_dir()
    assert issubclass(ConfigError, PenstockError)
