"""The command as a user runs it; CI runs these against the built wheel in a clean environment."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Run

pytestmark = pytest.mark.wheel


def test_help_groups_commands_and_gives_an_example_that_succeeds(penstock: Run) -> None:
    result = penstock("--help")
    assert result.returncode == 0
    assert "Plan" in result.stdout
    example = result.stdout.partition("Try: penstock ")[2].split()
    assert example[0] == "predict"
    assert penstock(*example).returncode == 0


@pytest.mark.parametrize(
    "command",
    [
        ("fit",),
        ("inspect",),
        ("catalog",),
        ("catalog", "list"),
        ("catalog", "show"),
        ("catalog", "diff"),
        ("catalog", "prices"),
        ("catalog", "models"),
    ],
)
def test_every_command_has_help_with_an_example(penstock: Run, command: tuple[str, ...]) -> None:
    result = penstock(*command, "--help")
    assert result.returncode == 0
    assert "penstock " in result.stdout.split("Usage:")[1].split("\n", 1)[1]


def test_version(penstock: Run) -> None:
    assert penstock("--version").stdout.startswith("penstock 0.")


def test_fit_exits_0_when_it_fits_everywhere_named(penstock: Run) -> None:
    result = penstock("fit", "llama-3.1-70b", "--on", "mi300x,h200:2")
    assert result.returncode == 0, result.stderr
    assert "mi300x" in result.stdout


def test_fit_exits_1_when_it_does_not_fit_on_one(penstock: Run) -> None:
    result = penstock("fit", "llama-3.1-70b", "--on", "mi300x,h100")
    assert result.returncode == 1
    assert "what would fit: --precision fp8, or 2 devices (tp2)" in result.stdout


def test_fit_json_states_every_number_in_bytes_and_tokens(penstock: Run) -> None:
    result = penstock("fit", "deepseek-r1", "--on", "mi300x:8,h200:8", "--context", "32k", "--kv", "fp8", "--json")
    document = json.loads(result.stdout)
    assert result.returncode == 0
    assert document["context_tokens"] == 32 * 1024
    for placed in document["deployments"]:
        assert placed["devices"] == 8
        assert placed["cache_dtype"] == "fp8"
        assert placed["tier"] == "calibrated"
        assert placed["capacity"]["low_tokens"] < placed["capacity"]["tokens"] < placed["capacity"]["high_tokens"]
        assert placed["budget"]["weight_bytes"] == sum(placed["budget"]["weight_bytes_by_part"].values())


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("fit", "llama-3.1-70b", "--on", "mi300"), "did you mean mi300x"),
        (("fit", "nobody/knows", "--on", "h100"), "hf:nobody/knows"),
        (("catalog", "show", "h1000"), "did you mean"),
        (("inspect", "no-such-thing"), "penstock catalog models"),
    ],
)
def test_an_expected_failure_is_one_line_with_the_fix_and_exit_code_3(
    penstock: Run, arguments: tuple[str, ...], complaint: str
) -> None:
    result = penstock(*arguments)
    assert result.returncode == 3, result.stdout + result.stderr
    assert result.stderr.count("\n") == 1
    assert complaint in result.stderr
    assert not result.stdout


FIT_70B = ("fit", "llama-3.1-70b", "--on")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((*FIT_70B, "h100:0"), "1 to 4096"),
        ((*FIT_70B, "h100:"), "1 to 4096"),
        ((*FIT_70B, ","), "names no accelerator"),
        ((*FIT_70B, "h100", "--context", "lots"), "use a number such as 4096, 32k or 1M"),
        ((*FIT_70B, "h100", "--kv", "int3"), "known: bf16, fp16, fp8"),
        ((*FIT_70B, "h100", "--precision", "fp5"), "use one of bf16"),
        ((*FIT_70B, "h100", "--engine", "tgi"), "use one of vllm, sglang, vllm-atom"),
        ((*FIT_70B, "h100", "--engine-version", "new"), "write 0.24, 0.11.2 or 0.28.0rc1"),
        ((*FIT_70B, "h100", "--tp", "5000"), "tp must be between 1 and 4096"),
        ((*FIT_70B, "h100", "--draft"), "no multi-token-prediction layers"),
        ((*FIT_70B, "h100:8", "--pp", "3"), "h100_sxm:8 has 8 devices, but a split with pp 3 uses 6"),
        ((*FIT_70B, "h100:2", "--tp", "8"), "h100_sxm:2 has 2 devices, but a split with tp 8 uses 8"),
        (("fit", "", "--on", "h100"), "no model is named"),
        (("catalog", "diff", "h100", "h100_sxm"), "are both h100_sxm"),
        (("catalog", "prices", "h100", "--kind", "foo"), "use one of rent_on_demand, rent_spot"),
    ],
)
def test_what_cannot_be_meant_is_one_line_and_exit_code_2(
    penstock_here: Run, arguments: tuple[str, ...], complaint: str
) -> None:
    result = penstock_here(*arguments)
    assert result.returncode == 2, result.stdout + result.stderr
    assert result.stderr.count("\n") == 1
    assert complaint in result.stderr
    assert not result.stdout


def test_the_process_ends_with_the_code_of_the_mistake(penstock: Run) -> None:
    result = penstock(*FIT_70B, "h100:0")
    assert (result.returncode, result.stderr.count("\n"), result.stdout) == (2, 1, "")


def test_every_no_has_its_reason_even_when_nothing_would_help(penstock: Run) -> None:
    result = penstock("fit", "llama-3.1-8b", "--on", "h100", "--ep")
    assert result.returncode == 1
    assert "h100_sxm does not fit: expert parallelism needs a mixture of experts" in result.stdout
    assert "what would" not in result.stdout


def test_a_tight_fit_is_marked_and_still_exits_0(penstock: Run) -> None:
    arguments = ("fit", "llama-3.1-70b", "--on", "b200", "--context", "90000")
    result = penstock(*arguments)
    assert result.returncode == 0
    assert "tight" in result.stdout
    placed = json.loads(penstock(*arguments, "--json").stdout)["deployments"][0]
    assert (placed["fits"], placed["certain"]) == (True, False)


def test_the_context_left_out_is_what_the_model_allows(penstock: Run) -> None:
    document = json.loads(penstock("fit", "llama-2-13b", "--on", "h100", "--json").stdout)
    assert document["context_tokens"] == 2048


def test_a_part_that_is_not_verified_is_marked(penstock: Run) -> None:
    result = penstock("fit", "gpt-oss-120b", "--on", "mi455x,mi300x", "--json")
    notes = [placed["notes"] for placed in json.loads(result.stdout)["deployments"]]
    assert any("mi455x is announced" in note for note in notes[0])
    assert notes[1] == ["stored in mxfp4, which mi300x does not compute natively"]
    assert "mi455x ?" in penstock("fit", "gpt-oss-120b", "--on", "mi455x").stdout


def test_a_bug_keeps_its_traceback_and_exits_70() -> None:
    code = "import penstock.cli.root as root\nroot.app = lambda: 1 / 0\nroot.main()"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 70
    assert "ZeroDivisionError" in result.stderr


def test_a_terminal_without_unicode_still_gets_its_answer(penstock: Run) -> None:
    result = penstock("fit", "llama-3.1-70b", "--on", "mi300x", env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert result.returncode == 0, result.stderr
    assert "mi300x" in result.stdout
    assert result.stdout.isascii()


def test_a_usage_error_exits_2(penstock: Run) -> None:
    assert penstock("fit", "llama-3.1-70b").returncode == 2
    assert penstock("inspect").returncode == 2
    assert penstock("fit", "llama-3.1-70b", "--on", "h100", "--tp", "0").returncode == 2


def test_a_missing_extra_names_the_install_line(penstock: Run) -> None:
    command = os.environ.get("PENSTOCK_COMMAND")
    if command is None:
        pytest.skip("this environment has the extra; CI runs this against the wheel without it")
    result = penstock("inspect", "hf:acme/small")
    assert result.returncode == 3
    assert "pip install 'penstock[hub]'" in result.stderr


@pytest.mark.parametrize("command", ["route", "emulate"])
def test_serving_without_its_extra_names_the_install_line(penstock: Run, command: str) -> None:
    if os.environ.get("PENSTOCK_COMMAND") is None:
        pytest.skip("this environment has the extra; CI runs this against the wheel without it")
    fleet = Path(__file__).parents[2] / "examples" / "fleets" / "chat-h100-mi300x.yaml"
    result = penstock(command, str(fleet))
    assert result.returncode == 3
    assert 'pip install "penstock[gateway]"' in result.stderr
    assert "Traceback" not in result.stderr


def test_inspect_checks_stored_tensors(penstock: Run, tmp_path: Path) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_hidden_layers": 1,
        "vocab_size": 128,
        "torch_dtype": "bfloat16",
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    header = json.dumps({"lm_head.weight": {"dtype": "BF16", "shape": [128, 64], "data_offsets": [0, 16384]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(16384))
    result = penstock("inspect", str(tmp_path), "--headers", "--json")
    document = json.loads(result.stdout)
    assert result.returncode == 1
    assert document["cross_check"]["agrees"] is False
    assert document["total_params"] > 0


def test_catalog_json_carries_sources(penstock: Run) -> None:
    document = json.loads(penstock("catalog", "show", "mi300x", "--json").stdout)
    assert document["accelerator"]["memory"]["hbm_bytes"] == 192 * 2**30
    assert all(source["checked_on"] and source["basis"] for source in document["accelerator"]["sources"])
    assert len(document["prices"]) >= 10


def test_catalog_list_hides_what_is_unverified_unless_asked(penstock: Run) -> None:
    assert "mi455x" not in penstock("catalog", "list").stdout
    assert "mi455x" in penstock("catalog", "list", "--all").stdout
    assert "add --all" in penstock("catalog", "list").stderr


def test_catalog_models_and_prices(penstock: Run) -> None:
    models = json.loads(penstock("catalog", "models", "--json").stdout)["models"]
    assert len(models) >= 70
    assert {"id", "repo", "architecture", "total_params", "active_params", "published", "source"} == set(models[0])
    prices = json.loads(penstock("catalog", "prices", "mi300x", "--kind", "rent_on_demand", "--json").stdout)["prices"]
    assert {price["kind"] for price in prices} == {"rent_on_demand"}


def test_a_reader_that_goes_away_is_not_an_error(penstock: Run) -> None:
    del penstock
    command = os.environ.get("PENSTOCK_COMMAND") or str(Path(sys.executable).parent / "penstock")
    with subprocess.Popen(
        [command, "catalog", "prices", "h100"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert not process.stderr.read()
    assert process.returncode != 1
