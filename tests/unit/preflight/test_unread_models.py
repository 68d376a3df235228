"""A model whose shape is not read still gets what needs no shape, and never a figure of memory."""

import json
import shlex
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

import penstock
from penstock.api.preflight import PreflightAnswer
from penstock.api.unread_answer import UnreadAnswer
from penstock.catalog import unread_models
from penstock.catalog.catalog_model import UnreadCatalogModel
from penstock.errors import ConfigError, PenstockError, UnknownArchitecture
from penstock.preflight import Readiness, load_knowledge
from penstock.preflight.unread_preflight import UnreadPreflight

ENGINES = ("vllm", "sglang", "vllm-atom", "atom", "trtllm")
KNOWLEDGE = load_knowledge()


def written(folder: Path, **config: object) -> str:
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return str(folder)


def only(answer: PreflightAnswer) -> UnreadPreflight:
    assert isinstance(answer, UnreadAnswer)
    [found] = answer.unread
    return found


def shown(answer: PreflightAnswer) -> str:
    console = Console(width=80, file=StringIO(), color_system=None)
    console.print(answer.render(80), crop=False)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("known", unread_models(), ids=lambda known: known.id)
def test_a_model_of_the_catalog_without_a_shape_is_answered_on_one_screen(
    known: UnreadCatalogModel,
) -> None:
    answer = penstock.preflight(known.id, "mi355x:8")
    found = only(answer)
    assert answer.exit_code == 4
    assert found.readiness is Readiness.UNDETERMINED
    assert found.question.model.name == known.repo
    assert known.repo in found.plan.bare()
    assert found.plan.image is not None
    text = shown(answer)
    assert "undetermined" in text
    assert "GiB" not in text
    assert len(text.splitlines()) < 24
    # Each of them is registered by an engine that was read.
    assert known.architecture == "unknown" or any(entry.since for entry in found.registrations)


@pytest.mark.parametrize(("release", "blocked"), [("0.29.0", True), ("0.30.0", False), ("0.33.0", False)])
def test_the_release_that_registers_the_architecture_decides(release: str, blocked: bool) -> None:  # noqa: FBT001
    answer = penstock.preflight("deepseek-v4.1-flash", "b200:8", engine_version=release)
    found = only(answer)
    assert (found.readiness is Readiness.BLOCKED) is blocked
    assert answer.exit_code == (1 if blocked else 4)
    assert [obstacle.kind for obstacle in found.obstacles] == (["architecture"] if blocked else [])


def test_an_engine_that_refuses_unregistered_architectures_is_blocked() -> None:
    assert only(penstock.preflight("deepseek-v4.1-flash", "mi355x:8", engine="atom")).readiness is Readiness.BLOCKED


def test_flags_and_images_of_a_command_are_checked_without_a_shape() -> None:
    line = "vllm serve deepseek-ai/DeepSeek-V4.1-Flash -tp 8 --tool-cal-parser hermes"
    [obstacle] = only(penstock.preflight(on="b200:8", command=line)).obstacles
    assert obstacle.kind == "flag"
    docker = "docker run vllm/vllm-openai:v0.32.0 deepseek-ai/DeepSeek-V4.1-Flash -tp 8"
    assert "image" in {one.kind for one in only(penstock.preflight(on="mi355x:8", command=docker)).obstacles}


def test_strict_does_not_accept_undetermined_memory() -> None:
    assert not penstock.preflight("deepseek-v4.1-flash", "b200:8", strict=True).good


def test_a_known_architecture_with_fields_that_no_reader_knows_is_answered(tmp_path: Path) -> None:
    layers = {"num_hidden_layers": 2, "layer_types": ["full_attention", "fractal_attention"]}
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 256}
    config = {"architectures": ["MistralForCausalLM"], "sliding_window": 16, **layers, **sizes}
    found = only(penstock.preflight(written(tmp_path, **config), "h100"))
    assert "fractal_attention" in found.question.model.reason
    assert found.readiness is Readiness.UNDETERMINED


def test_a_quantisation_method_that_the_release_lacks_stops_it(tmp_path: Path) -> None:
    config = {"architectures": ["NewForCausalLM"], "quantization_config": {"quant_method": "seven_bits"}}
    [obstacle] = only(penstock.preflight(written(tmp_path, **config), "h100", engine_version="0.32.0")).obstacles
    assert "seven_bits" in obstacle.text


@pytest.mark.parametrize("text", ["{", "[1]", "{}", '{"architectures": 3}', '{"architectures": []}'])
def test_a_malformed_config_is_still_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError):
        penstock.preflight(str(tmp_path), "h100")


def test_fit_says_what_is_missing_and_where_to_ask() -> None:
    with pytest.raises(UnknownArchitecture, match="not known here, nothing checked") as caught:
        penstock.fit("qwen3.8-flash-next", "b200:8")
    assert "\n" not in str(caught.value)


def test_a_matrix_needs_the_shape() -> None:
    with pytest.raises(UnknownArchitecture):
        penstock.preflight("qwen3.8-flash-next", matrix=True)


@settings(max_examples=30, deadline=None)
@given(
    architecture=st.sampled_from(sorted(set(KNOWLEDGE.architectures["vllm"]) - {"last_read"})),
    engine=st.sampled_from(ENGINES),
    on=st.sampled_from(("mi300x:8", "mi355x:4", "b200:8", "h100")),
)
def test_every_registered_architecture_gets_an_answer_with_a_command(
    tmp_path_factory: pytest.TempPathFactory, architecture: str, engine: str, on: str
) -> None:
    folder = written(tmp_path_factory.mktemp("model"), architectures=[architecture])
    try:
        answer = penstock.preflight(folder, on, engine=engine)
    except PenstockError as error:
        # The architecture is one that a reader knows, and the config states none of its sizes.
        assert "is missing" in str(error)  # noqa: PT017
        return
    found = only(answer)
    assert shlex.split(found.plan.bare().replace("\\\n", " "))
    assert answer.to_dict()["schema"] == "penstock.preflight.unread/1"


def test_a_repository_that_the_catalog_does_not_have_is_answered() -> None:
    """Attack: a launch line of one's own checkpoint ended in an error, although its flags need no shape."""
    line = "vllm serve some-org/My-Finetune-70B -tp 8"
    answer = penstock.preflight(on="h100:8", command=line)
    found = only(answer)
    assert answer.exit_code == 4
    assert found.readiness is Readiness.UNDETERMINED
    assert found.registrations == ()
    assert "hf:some-org/My-Finetune-70B" in shown(answer)
    assert not penstock.preflight(on="h100:8", command=line, strict=True).good
    misspelt = only(penstock.preflight(on="h100:8", command=f"{line} --max-modl-len 4096"))
    assert "did you mean --max-model-len?" in misspelt.obstacles[0].text
    few = only(penstock.preflight(on="h100:4", command=line))
    assert [stop.kind for stop in few.obstacles] == ["devices"]


@pytest.mark.parametrize("name", ["nonsense", "./some-org/name", "/some/name", "a/b/c"])
def test_a_name_that_is_no_repository_is_refused(name: str) -> None:
    with pytest.raises(PenstockError):
        penstock.preflight(name, "h100:8")
