"""`penstock preflight` and `penstock fp8 scan` as a user runs them."""

import json
from pathlib import Path

import pytest

from conftest import Run
from fp8_checkpoints import Tensors, block_checkpoint, write_safetensors

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 256,
    "intermediate_size": 256,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 1024,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
}


@pytest.fixture
def checkpoint(tmp_path: Path) -> tuple[Path, Tensors]:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    tensors = block_checkpoint()
    write_safetensors(folder / "model.safetensors", tensors)
    return folder, tensors


def test_help_has_examples(penstock: Run) -> None:
    for command in (("preflight",), ("fp8", "scan")):
        result = penstock(*command, "--help")
        assert result.returncode == 0
        assert "Examples" in result.stdout


def test_a_sound_combination_exits_0_and_prints_its_launch(penstock: Run) -> None:
    result = penstock("preflight", "llama-3.1-70b", "--on", "mi300x:2", "--engine-version", "0.27.1", "--explain")
    assert result.returncode == 0, result.stderr
    assert "VLLM_ROCM_USE_AITER=1 \\\n    vllm serve" in result.stdout
    assert "ROCM_ATTN" in result.stdout
    assert "output tok/s" in result.stdout


def test_silent_wrong_and_blockers_exit_1(penstock: Run) -> None:
    result = penstock("preflight", "deepseek-v4-flash", "--on", "mi300x", "--engine-version", "0.23.0", "--explain")
    assert result.returncode == 1
    assert "does not run" in result.stdout
    assert "https://github.com/vllm-project/vllm/issues/45681" in result.stdout


def test_json_holds_findings_facts_and_commands(penstock: Run) -> None:
    result = penstock("preflight", "gpt-oss-120b", "--on", "mi300x,b200", "--json")
    document = json.loads(result.stdout)
    assert [entry["accelerator"] for entry in document["deployments"]] == ["mi300x", "b200_sxm"]
    first = document["deployments"][0]
    assert first["passes"] is True
    assert first["facts"]["chip"] == "gfx942"
    assert first["facts"]["tensors.dtypes"]["unknown"]
    assert first["predictions"]["attention"]["backend"] == "ROCM_AITER_UNIFIED_ATTN"
    assert all(finding["sources"] for finding in first["findings"])
    assert first["launch"]["docker"].startswith("docker run")


def test_a_pasted_command_is_checked_instead(penstock: Run) -> None:
    line = "VLLM_USE_V1=1 vllm serve openai/gpt-oss-120b -tp 2 --swap-space 4 --attention-backend ROCM_ATTN"
    result = penstock("preflight", "gpt-oss-120b", "--on", "mi300x", "--command", line, "--engine-version", "0.27.1")
    assert result.returncode == 1
    assert "--swap-space was removed in 0.18.0" in result.stdout
    assert "VLLM_USE_V1 was removed in 0.11.1" in result.stdout
    assert "no attention sinks" in result.stdout
    assert "mi300x x2" in result.stdout


def test_the_matrix_covers_every_accelerator_and_both_engines(penstock: Run) -> None:
    result = penstock("preflight", "gpt-oss-20b", "--matrix")
    assert result.returncode == 0, result.stderr
    rows = [line for line in result.stdout.splitlines() if " x" in line]
    assert len(rows) >= 29
    assert any(line.startswith("mi300x x1") and "no kernel for mxfp4" in line for line in rows)


def test_headers_and_bytes_of_a_local_checkpoint_are_used(penstock: Run, checkpoint: tuple[Path, Tensors]) -> None:
    folder, tensors = checkpoint
    sound = penstock("preflight", str(folder), "--on", "mi300x", "--kv", "fp8", "--scan", "--json")
    facts = json.loads(sound.stdout)["deployments"][0]["facts"]
    assert facts["bytes.fp8_nan"] is False
    assert facts["kv.scales"] is False
    assert facts["tensors.dtypes"] == ["F32", "F8_E4M3"]
    name = "model.layers.1.mlp.gate_proj.weight"
    dtype, shape, data = tensors[name]
    tensors[name] = (dtype, shape, b"\x7f" + data[1:])
    write_safetensors(folder / "model.safetensors", tensors)
    damaged = penstock("preflight", str(folder), "--on", "mi300x", "--scan", "--explain")
    assert damaged.returncode == 1
    assert "fp8-nan-becomes-240" in damaged.stdout
    assert "fp8-nan-becomes-240" not in penstock("preflight", str(folder), "--on", "h100", "--scan", "--explain").stdout


def test_fp8_scan_exits_1_on_damage_and_names_the_tensor(penstock: Run, checkpoint: tuple[Path, Tensors]) -> None:
    folder, tensors = checkpoint
    assert penstock("fp8", "scan", str(folder)).returncode == 0
    del tensors["model.layers.1.mlp.gate_proj.weight_scale_inv"]
    write_safetensors(folder / "model.safetensors", tensors)
    result = penstock("fp8", "scan", str(folder), "--json")
    assert result.returncode == 1
    finding = json.loads(result.stdout)["findings"][0]
    assert finding["kind"] == "missing_scale"
    assert finding["tensor"] == "model.layers.1.mlp.gate_proj.weight"


def test_a_mistake_ends_the_process_with_2(penstock: Run) -> None:
    assert penstock("preflight").returncode == 2


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("preflight",), 2),
        (("preflight", "gpt-oss-20b"), 2),
        (("preflight", "gpt-oss-20b", "--on", "mi300x", "--matrix"), 2),
        (("preflight", "gpt-oss-20b", "--on", "mi300x", "--engine-version", "soon"), 2),
        (("preflight", "gpt-oss-20b", "--on", "mi300x", "--host", "rocm"), 2),
        (("preflight", "gpt-oss-20b", "--on", "mi300x", "--host", "colour=red"), 2),
        (("preflight", "gpt-oss-20b", "--on", "mi300x", "--kv", "fp3"), 2),
        (("preflight", "gpt-oss-20b", "--on", "mi300x", "--scan"), 2),
        (("preflight", "gpt-oss-20b", "--on", "mi300x", "--reference", "x.json"), 2),
        (("preflight", "--probe", "http://127.0.0.1:9"), 2),
        (("preflight", "--probe", "http://127.0.0.1:9", "--save-reference", "x.json"), 3),
        (("preflight", "nobody", "--on", "mi300x"), 3),
        (("fp8", "scan", "nowhere"), 3),
        (("fit", "minimax-m3.1-flash", "--on", "h200"), 4),
    ],
)
def test_what_cannot_be_meant_is_one_line(
    penstock_here: Run, tmp_path: Path, arguments: tuple[str, ...], code: int
) -> None:
    result = penstock_here(*arguments, cwd=tmp_path)
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
