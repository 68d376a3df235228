"""Reading a checkpoint from disk, and holding its stored tensors against its config."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from penstock.checkpoint import StoredTensor, cross_check, open_checkpoint, read_header
from penstock.errors import CheckpointError, UnknownArchitecture, UnknownName, UsageError
from penstock.model.weight import FP8_BLOCK

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_hidden_layers": 2,
    "vocab_size": 256,
    "torch_dtype": "float16",
    "max_position_embeddings": 4096,
}


def tensors() -> dict[str, np.ndarray]:
    """Exactly the tensors such a checkpoint has."""
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (256, 64),
        "lm_head.weight": (256, 64),
        "model.norm.weight": (64,),
    }
    for layer in range(2):
        path = f"model.layers.{layer}"
        shapes |= {
            f"{path}.self_attn.q_proj.weight": (64, 64),
            f"{path}.self_attn.k_proj.weight": (32, 64),
            f"{path}.self_attn.v_proj.weight": (32, 64),
            f"{path}.self_attn.o_proj.weight": (64, 64),
            f"{path}.self_attn.q_norm.weight": (16,),
            f"{path}.self_attn.k_norm.weight": (16,),
            f"{path}.mlp.gate_proj.weight": (128, 64),
            f"{path}.mlp.up_proj.weight": (128, 64),
            f"{path}.mlp.down_proj.weight": (64, 128),
            f"{path}.input_layernorm.weight": (64,),
            f"{path}.post_attention_layernorm.weight": (64,),
        }
    return {name: np.zeros(shape, dtype=np.float16) for name, shape in shapes.items()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    stored = tensors()
    names = sorted(stored)
    save_file({name: stored[name] for name in names[::2]}, tmp_path / "model-00001-of-00002.safetensors")
    save_file({name: stored[name] for name in names[1::2]}, tmp_path / "model-00002-of-00002.safetensors")
    return tmp_path


def test_a_real_checkpoint_agrees_with_its_config(folder: Path) -> None:
    checkpoint = open_checkpoint(str(folder), headers=True)
    assert checkpoint.tensors is not None
    check = cross_check(checkpoint.spec, checkpoint.tensors)
    assert check.agrees
    assert check.stored_bytes == check.expected_bytes == sum(array.nbytes for array in tensors().values())
    assert (check.missing, check.unexpected, check.wrong_shapes) == ((), (), ())


def test_a_tensor_of_another_size_is_named(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({**CONFIG, "intermediate_size": 256}))
    checkpoint = open_checkpoint(str(folder), headers=True)
    assert checkpoint.tensors is not None
    check = cross_check(checkpoint.spec, checkpoint.tensors)
    assert not check.agrees
    assert any("mlp.gate_proj" in name for name in check.wrong_shapes)
    assert check.difference_fraction < 0


def test_missing_and_unexpected_modules_are_named(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": 3}))
    checkpoint = open_checkpoint(str(folder), headers=True)
    assert checkpoint.tensors is not None
    assert any(name.startswith("model.layers.2.") for name in cross_check(checkpoint.spec, checkpoint.tensors).missing)
    (folder / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": 1}))
    checkpoint = open_checkpoint(str(folder), headers=True)
    assert checkpoint.tensors is not None
    assert any(
        name.startswith("model.layers.1.") for name in cross_check(checkpoint.spec, checkpoint.tensors).unexpected
    )


def test_our_header_reader_sees_what_the_library_wrote(folder: Path) -> None:
    found = {tensor.name: tensor.shape for file in folder.glob("*.safetensors") for tensor in read_header(file)}
    assert found == {name: array.shape for name, array in tensors().items()}


def test_a_config_file_alone_is_enough(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    alone = tmp_path_factory.mktemp("DeepSeek-R9") / "config.json"
    alone.write_bytes((folder / "config.json").read_bytes())
    checkpoint = open_checkpoint(str(alone), headers=True)
    assert checkpoint.tensors is None
    assert checkpoint.spec.total_params == sum(array.size for array in tensors().values())
    assert checkpoint.spec.name == alone.parent.name
    renamed = alone.rename(alone.with_name("acme-9b.json"))
    assert open_checkpoint(str(renamed)).spec.name == "acme-9b"


def test_tensors_are_found_beside_a_config_file(folder: Path) -> None:
    checkpoint = open_checkpoint(str(folder / "config.json"), headers=True)
    assert checkpoint.tensors is not None
    assert cross_check(checkpoint.spec, checkpoint.tensors).agrees


def test_a_second_copy_of_the_weights_is_not_counted(folder: Path) -> None:
    save_file(tensors(), folder / "consolidated.safetensors")
    unindexed = open_checkpoint(str(folder), headers=True)
    assert unindexed.tensors is not None
    assert cross_check(unindexed.spec, unindexed.tensors).agrees
    save_file(tensors(), folder / "weights.safetensors")
    index = {"weight_map": dict.fromkeys(tensors(), "weights.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    indexed = open_checkpoint(str(folder), headers=True)
    assert indexed.tensors is not None
    assert len(indexed.tensors) == len(tensors())


@pytest.mark.parametrize(
    ("index", "complaint"),
    [
        ("[", "not valid JSON"),
        ("[]", "weight_map is missing"),
        ('{"weight_map": {"a": "../../etc/passwd"}}', "not a safetensors file in the same directory"),
        ('{"weight_map": {"a": "/tmp/model.safetensors"}}', "not a safetensors file in the same directory"),
        ('{"weight_map": {"a": "gone.safetensors"}}', "gone.safetensors: No such file"),
    ],
)
def test_an_index_is_not_trusted(folder: Path, index: str, complaint: str) -> None:
    (folder / "model.safetensors.index.json").write_text(index)
    with pytest.raises(CheckpointError, match=complaint):
        open_checkpoint(str(folder), headers=True)


def test_an_fp32_checkpoint_agrees_with_its_headers(folder: Path) -> None:
    for file in folder.glob("*.safetensors"):
        file.unlink()
    (folder / "config.json").write_text(json.dumps({**CONFIG, "torch_dtype": "float32"}))
    save_file({name: array.astype(np.float32) for name, array in tensors().items()}, folder / "model.safetensors")
    checkpoint = open_checkpoint(str(folder), headers=True)
    assert checkpoint.tensors is not None
    check = cross_check(checkpoint.spec, checkpoint.tensors)
    assert check.agrees
    # Engines load half of what is stored.
    assert check.expected_bytes == 2 * checkpoint.spec.weight_bytes


def test_a_transposed_tensor_is_a_wrong_shape(folder: Path) -> None:
    checkpoint = open_checkpoint(str(folder), headers=True)
    assert checkpoint.tensors is not None
    turned = [
        replace(tensor, shape=tensor.shape[::-1]) if "gate_proj" in tensor.name else tensor
        for tensor in checkpoint.tensors
    ]
    check = cross_check(checkpoint.spec, turned)
    assert not check.agrees
    assert check.wrong_shapes[0] == "model.layers.0.mlp.gate_proj.weight [64, 128]: expected [128, 64]"


def test_a_missing_module_with_nothing_in_its_place_does_not_agree(folder: Path) -> None:
    checkpoint = open_checkpoint(str(folder), headers=True)
    assert checkpoint.tensors is not None
    kept = [tensor for tensor in checkpoint.tensors if tensor.name != "model.norm.weight"]
    check = cross_check(checkpoint.spec, kept)
    assert abs(check.difference_fraction) < 0.01
    assert check.missing == ("model.norm",)
    assert not check.agrees


def test_a_truncated_file_is_refused(folder: Path) -> None:
    file = folder / "model-00001-of-00002.safetensors"
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(CheckpointError, match="model-00001-of-00002"):
        open_checkpoint(str(folder), headers=True)


def test_an_unknown_architecture_is_an_error_that_says_so(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({**CONFIG, "architectures": ["Qwen9ForCausalLM"]}))
    with pytest.raises(UnknownArchitecture, match=r"Qwen9ForCausalLM.*cannot be read exactly by this version.*nearest"):
        open_checkpoint(str(folder))


def test_a_name_nobody_knows_says_where_to_look() -> None:
    with pytest.raises(UnknownName, match=r"did you mean llama-3\.1-70b.*no file or directory has this name"):
        open_checkpoint("llama-3.1-70")
    with pytest.raises(UnknownName, match="hf:acme/Model"):
        open_checkpoint("acme/Model")


def test_an_architecture_that_is_merely_spelt_alike_is_not_suggested(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({**CONFIG, "architectures": ["JambaForCausalLM"]}))
    with pytest.raises(UnknownArchitecture, match=r"^(?!.*nearest).*JambaForCausalLM"):
        open_checkpoint(str(folder))


def test_an_error_names_the_file_it_is_in(tmp_path: Path) -> None:
    file = tmp_path / "acme.json"
    file.write_text("{")
    with pytest.raises(CheckpointError, match=r"acme\.json: not valid JSON"):
        open_checkpoint(str(file))


@pytest.mark.parametrize("name", ["", "  "])
def test_an_empty_name_is_not_the_current_directory(name: str) -> None:
    with pytest.raises(UsageError, match="no model is named"):
        open_checkpoint(name)


def test_a_directory_that_only_shares_a_name_does_not_hide_the_catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "llama-3.1-70b").mkdir()
    monkeypatch.chdir(tmp_path)
    assert open_checkpoint("llama-3.1-70b").spec.total_params == 70_553_706_496


def test_an_empty_directory_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no config\.json"):
        open_checkpoint(str(tmp_path))


@pytest.mark.parametrize(("declared", "agrees"), [(128, True), (64, False)])
def test_scales_are_held_against_the_block_the_config_declares(declared: int, agrees: bool) -> None:  # noqa: FBT001 - a case
    block = replace(FP8_BLOCK, scale_rows=declared, scale_columns=declared)
    weight = StoredTensor(name="m.weight", dtype="F8_E4M3", shape=(256, 512))
    scale = StoredTensor(name="m.weight_scale_inv", dtype="F32", shape=(2, 4))
    found = cross_check(open_checkpoint("qwen3-8b").spec.stored_as(block), [weight, scale])
    assert (not found.wrong_shapes) == agrees
