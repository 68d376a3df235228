"""Lines as people paste them: torn, completed by a shell, with values of the wrong kind, on too few devices."""

import re
from io import StringIO

import pytest
from rich.console import Console

import penstock
from penstock.errors import UsageError
from penstock.fleet.release import Release
from penstock.preflight import Preflight, load_knowledge, parse_command
from penstock.preflight.launch.images import image_release, rocm_of_image

LLAMA = "meta-llama/Llama-3.3-70B-Instruct"


def asked(line: str, on: str = "h100:8", version: str | None = None) -> Preflight:
    (answer,) = penstock.preflight(on=on, command=line, engine_version=version).answers
    return answer


def stops(answer: Preflight) -> list[tuple[str, str]]:
    return [(obstacle.kind, obstacle.text) for obstacle in answer.obstacles]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("vllm serve {} \\ \n  -tp 8", "a blank follows the backslash"),
        ("vllm serve {}\n  --tensor-parallel-size 8", "the line before --tensor-parallel-size ends without"),
        ("vllm serve {} \u2014tensor-parallel-size 8", "type --tensor-parallel-size"),
        ("vllm serve {} \u2212\u2212tensor-parallel-size 8", "type --tensor-parallel-size"),
        ("vllm serve {} \u2013tp 8", "type -tp"),
        ("vllm serve \u201c{}\u201d -tp 8", "quotation marks are typographic"),
    ],
)
def test_a_torn_line_is_named_and_read_as_it_was_meant(line: str, said: str) -> None:
    answer = asked(line.format(LLAMA))
    assert answer.question.asked.parallelism.tp == 8
    ((kind, text),) = stops(answer)
    assert kind == "line"
    assert said in text


@pytest.mark.parametrize(
    "line",
    [
        "export TP=8\nvllm serve {} \\\n  -tp $TP",
        "vllm serve {} -tp ${{TP:-8}}  # eight of them",
        "vllm serve {} -tp $(nvidia-smi -L | wc -l) --seed -1",
        "vllm serve {} -tp `nvidia-smi -L | wc -l`",
        "$ vllm serve {} -tp 8\n\n",
    ],
)
def test_a_line_a_shell_completes_is_read_so(line: str) -> None:
    answer = asked(line.format(LLAMA))
    assert answer.question.asked.parallelism.tp == 8
    assert answer.passes


@pytest.mark.parametrize(
    ("line", "on", "seen"),
    [
        ("CUDA_VISIBLE_DEVICES=0,1,2,3 vllm serve {} -tp 8", "h100:8", 4),
        ("HIP_VISIBLE_DEVICES=0,1 vllm serve {} -tp 4", "mi300x:8", 2),
        ("docker run --gpus '\"device=0,1\"' vllm/vllm-openai:v0.20.0 --model {} -tp 8", "h100:8", 2),
        ("docker run --gpus 4 -e HF_TOKEN=x vllm/vllm-openai:v0.20.0 {} -tp 8", "h100:8", 4),
    ],
)
def test_a_line_that_hides_devices_it_starts_on_is_refused(line: str, on: str, seen: int) -> None:
    assert [text for kind, text in stops(asked(line.format(LLAMA), on)) if kind == "devices"] == [
        f"the command lets the engine see {seen} of the {4 if on == 'mi300x:8' else 8} devices that it needs"
    ]


@pytest.mark.parametrize(
    "shown", ["CUDA_VISIBLE_DEVICES=4,5,6,7", "CUDA_VISIBLE_DEVICES=$MINE", "CUDA_VISIBLE_DEVICES="]
)
def test_devices_enough_or_unknown_are_no_obstacle(shown: str) -> None:
    assert asked(f"{shown} vllm serve {LLAMA} -tp 4").passes


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--host http://0.0.0.0", "--host http://0.0.0.0 is a URL"),
        ("--host 0.0.0.0:8000", "write 0.0.0.0 and --port 8000"),
        ("--host 300.1.1.1", "is not an address"),
        ("--host 'my host'", "is not an address"),
        ("--host 1::g", "is not an address"),
        ("--seed abc", "--seed abc is not a whole number"),
        ("--cpu-offload-gb some", "is not a number"),
        ("--port", "--port needs a value"),
        ("--enable-prefix-caching true", "takes no value"),
        ("--trust-remote-code=True", "takes no value; write --trust-remote-code alone"),
        ("--enable-prefix-caching=False", "write --no-enable-prefix-caching to turn it off"),
        ("--enable-chunked-prefill false", "write --no-enable-chunked-prefill to turn it off"),
        ("--compilation-config '{cudagraph_mode: FULL}'", "is not valid JSON"),
        ('--speculative-config \'{"method": "eagle3"\'', "is not valid JSON"),
        ("--speculative-config 3", "is not a JSON object"),
        ("--compilation-config 3", "is not a JSON object"),
        ("--max-num-seqs 1k", "is not a whole number"),
        ("--load-format gguff", "did you mean gguf?"),
        ("--uvicorn-log-level loud", "no such value"),
        ("--enable-auto-tool-choice", "needs --tool-call-parser"),
        ("--no-enable-chunked-prefill --max-num-batched-tokens 4096", "less than the 131,072 tokens"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named(flags: str, said: str) -> None:
    ((kind, text),) = stops(asked(f"vllm serve {LLAMA} -tp 8 {flags}"))
    assert kind == "flag"
    assert said in text


@pytest.mark.parametrize(
    "flags",
    [
        "--host 0.0.0.0 --port 8000",
        "--host localhost",
        "--host ::",
        "--host my-node_1.cluster.local",
        "--host 127.1",
        "--seed -1 --max-logprobs -1",
        "--trust-remote-code --enable-prefix-caching",
        "--no-enable-prefix-caching",
        """--compilation-config '{"mode": 3, "compile_sizes": [1k]}'""",
        "--limit-mm-per-prompt.image 0",
        "--cpu-offload-gb 1.5",
    ],
)
def test_a_value_of_the_right_kind_is_not(flags: str) -> None:
    assert asked(f"vllm serve {LLAMA} -tp 8 {flags}").passes


@pytest.mark.parametrize("flags", ["--trust-remote-code true", "--port abc", "--host 0.0.0.0:30000"])
def test_sglang_has_kinds_of_its_own(flags: str) -> None:
    ((kind, _),) = stops(asked(f"python3 -m sglang.launch_server --model-path {LLAMA} --tp 8 {flags}"))
    assert kind == "flag"


def test_a_count_that_does_not_parse_is_the_only_complaint() -> None:
    assert stops(asked(f"vllm serve {LLAMA} --tensor-parallel-size eight")) == [
        ("flag", "--tensor-parallel-size eight is not a whole number")
    ]


def test_what_was_typed_is_kept() -> None:
    _, launch = parse_command(f"FOO=1 vllm serve {LLAMA} --served-model-name a b")
    assert launch.typed == ("FOO=1", "vllm", "serve", LLAMA, "--served-model-name", "a", "b")


def shown(
    columns: int, line: str | None = None, model: str | None = None, on: str = "h100:8", engine: str = "vllm"
) -> str:
    written = StringIO()
    answer = penstock.preflight(model, on, command=line, engine=engine, explain=True)
    Console(width=columns, file=written, color_system=None).print(answer.render(columns))
    return written.getvalue()


def test_the_line_shown_is_the_one_that_was_checked() -> None:
    text = shown(100, f"FOO=1 vllm serve {LLAMA} -tp 8 --served-model-name a 'b c' --port $PORT")
    launch = text.partition("\nlaunch\n")[2]
    assert launch.splitlines() == [
        "  your command, as parsed",
        f"  FOO=1 vllm serve {LLAMA} \\",
        "    -tp 8 \\",
        "    --served-model-name a 'b c' \\",
        "    --port $PORT",
    ]


def test_a_line_that_does_not_serve_is_shown_beside_the_one_that_would() -> None:
    text = shown(100, f"vllm serve {LLAMA} -tp 8 --swap-space 4")
    assert "  your command, as parsed; it is not expected to serve\n" in text
    assert "    --swap-space 4\n  launch that preflight proposes\n  vllm serve" in text


def test_what_does_not_start_has_no_speed_and_no_launch() -> None:
    written = StringIO()
    answer = penstock.preflight("minimax-m3", "b200:8", engine_version="0.10.0", explain=True)
    Console(width=200, file=written, color_system=None).print(answer.render(200))
    text = written.getvalue()
    assert "does not know MiniMaxM3SparseForConditionalGeneration, which this config calls MiniMaxM3ForCausalLM" in text
    assert answer.speeds == (None,)
    for absent in ("speed", "vllm serve", "docker run", "serving configuration\n", "in the launch"):
        assert absent not in text, absent


def test_a_file_of_flags_is_said_to_be_unread() -> None:
    assert "! --config a.yaml is not read" in shown(100, f"vllm serve {LLAMA} -tp 8 --config a.yaml")


def test_a_variable_that_is_ignored_is_counted() -> None:
    text = shown(100, f"VLLM_ATTENTION_BACKEND=FLASHINFER vllm serve {LLAMA} -tp 8")
    assert " on this chip: 1 ignored\n" in text
    assert "! VLLM_ATTENTION_BACKEND was removed in 0.15.0 and is ignored; use --attention-backend\n" in text


@pytest.mark.parametrize("model", ["deepseek-r1", "nemotron-3-super-fp8", "kimi-k2"])
def test_as_many_are_listed_as_the_headline_leaves_open(model: str) -> None:
    text = shown(200, model=model, on="mi300x:8")
    counted = re.search(r"; (\d+) undecided", text)
    listed = text.partition("\nundecided rules\n")[2].partition("\n\n")[0]
    assert int(counted[1] if counted else 0) == len(re.findall(r"\((?:blocker|silent-wrong|warning)\)", listed))


@pytest.mark.parametrize(("model", "on"), [("kimi-k2.5", "mi355x:8"), ("deepseek-v3.2", "mi300x:8")])
def test_no_address_and_no_image_is_cut_on_a_narrow_terminal(model: str, on: str) -> None:
    assert "\u2026" not in shown(80, model=model, on=on)


def test_sglang_says_how_much_of_the_context_it_has_room_for() -> None:
    assert "runs with room for 19,342 of its 40,960 tokens of context" in shown(
        200, model="qwen3-32b", on="h100", engine="sglang"
    )


def test_a_part_whose_compiler_target_nobody_knows_is_undetermined() -> None:
    assert "undetermined" in shown(100, model="qwen3-0.6b", on="rubin").splitlines()[0]


def test_a_level_was_a_configuration_once() -> None:
    assert asked(f"vllm serve {LLAMA} -tp 8 --compilation-config 3", version="0.10.0").passes


@pytest.mark.parametrize(
    ("model", "served", "known"),
    [
        ("glm-4.7", "meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("llama-3.1-70b", "nvidia/Llama-3.1-70B-Instruct-FP8", "llama-3.1-70b-fp8"),
        ("meta-llama/Llama-3.1-70B-Instruct", "llama-3.3-70b", "llama-3.3-70b"),
    ],
)
def test_a_line_that_serves_another_model_is_refused(model: str, served: str, known: str) -> None:
    with pytest.raises(UsageError) as refused:
        penstock.preflight(model, "h200:8", command=f"vllm serve {served} -tp 8")
    (line,) = str(refused.value).splitlines()
    assert served in line
    assert known in line
    assert f"not {model}" in line


@pytest.mark.parametrize(
    "served",
    [
        "meta-llama/Llama-3.1-70B-Instruct",
        "meta-llama/llama-3.1-70b-instruct",
        "meta-llama/Meta-Llama-3.1-70B",
        "Llama-3.1-70B-Instruct",
    ],
)
def test_other_names_of_the_model_are_the_model(served: str) -> None:
    (answer,) = penstock.preflight("llama-3.1-70b", "h200:8", command=f"vllm serve {served} -tp 8").answers
    assert answer.notes == ()


@pytest.mark.parametrize("served", ["/models/llama", "./llama", "somebody/Llama-3.1-70B-abliterated", "$MODEL"])
def test_a_model_that_cannot_be_compared_is_noted(served: str) -> None:
    answer = penstock.preflight("llama-3.1-70b", "h200:8", command=f"vllm serve {served} -tp 8")
    (note,) = answer.answers[0].notes
    assert note.startswith(f"cannot tell whether {served} is meta-llama/Llama-3.1-70B-Instruct")
    assert answer.good
    assert list(answer.document()["deployments"][0]["notes"]) == [note]  # type: ignore[index]


@pytest.mark.parametrize(
    ("image", "release", "rocm"),
    [
        ("rocm/vllm:rocm7.0.0_vllm_0.11.2_20251210", "0.11.2", "7.0.0"),
        ("rocm/vllm:rocm6.3.1_instinct_vllm0.8.3_20250410", "0.8.3", "6.3.1"),
        ("docker.io/vllm/vllm-openai:v0.12.0", "0.12.0", None),
        ("vllm/vllm-openai:v0.12.0-cu129", "0.12.0", None),
        ("lmsysorg/sglang:v0.5.9-rocm700-mi35x", "0.5.9", "7.0.0"),
        ("rocm/sgl-dev:v0.5.8.post1-rocm720-mi35x-20260219", "0.5.8.post1", "7.2.0"),
        ("rocm/atom:rocm7.2.4_ubuntu24.04_py3.12_pytorch_release_2.10.0_atom0.1.3", "0.1.3", "7.2.4"),
        ("rocm/vllm:latest", None, None),
        ("rocm/atom-dev:nightly_202606161823", None, None),
    ],
)
def test_the_tag_of_a_vendors_image_names_the_release(image: str, release: str | None, rocm: str | None) -> None:
    found = image_release(image)
    assert found == (None if release is None else Release(release))
    assert rocm_of_image(image, found or Release("0.12.0"), load_knowledge().images) == rocm


def test_a_line_is_judged_by_the_release_of_its_image() -> None:
    line = "docker run --rm rocm/vllm:rocm7.0.0_vllm_0.11.2_20251210 vllm serve openai/gpt-oss-120b"
    (answer,) = penstock.preflight("gpt-oss-120b", "mi300x:1", command=line).answers
    assert str(answer.question.version) == "0.11.2"


@pytest.mark.parametrize(
    "before",
    [
        "docker pull vllm/vllm-openai:v0.12.0 &&",
        "pip install --upgrade vllm;",
        "export VLLM_ROCM_USE_AITER=1; cd /tmp &&",
        "source env.sh ;",
    ],
)
def test_of_several_commands_the_one_that_starts_the_server_is_read(before: str) -> None:
    engine, launch = parse_command(f"{before} vllm serve a/b --max-model-len 4096 | tee log.txt")
    assert engine == "vllm"
    assert launch.flags == {"model-path": "a/b", "max-model-len": "4096"}
    assert launch.environment == ({"VLLM_ROCM_USE_AITER": "1"} if "AITER" in before else {})


@pytest.mark.parametrize(
    "line",
    [
        "numactl --cpunodebind=0 --membind=0 vllm serve {} -tp 8",
        "srun -n 1 --gpus-per-node=8 python3 -u -m vllm.entrypoints.openai.api_server --model {} -tp 8",
        "taskset -c 0-31 /opt/venv/bin/vllm serve {} -tp 8",
        "docker run vllm/vllm-openai:v0.32.0 bash -c 'numactl --membind=0 vllm serve {} -tp 8'",
    ],
)
def test_options_of_a_wrapper_are_not_flags_of_the_engine(line: str) -> None:
    answer = asked(line.format(LLAMA))
    assert stops(answer) == []
    assert answer.question.launch is not None
    assert set(answer.question.launch.flags) == {"model-path", "tensor-parallel-size"}


def test_variables_after_env_count_behind_a_wrapper() -> None:
    _, launch = parse_command(f"nohup env VLLM_ROCM_USE_AITER=1 vllm serve {LLAMA}")
    assert launch.environment == {"VLLM_ROCM_USE_AITER": "1"}


@pytest.mark.parametrize("line", ["", "  \n", "# nothing is left of it"])
def test_an_empty_command_is_refused_instead_of_replaced(line: str) -> None:
    with pytest.raises(UsageError, match="the launch command is empty"):
        penstock.preflight("llama-3.1-8b", on="h100", command=line)


@pytest.mark.parametrize(
    ("served", "same_weights"),
    [
        ("meta-llama/Llama-3.1-405B-Instruct-FP8", False),
        ("somebody/Llama-3.1-405B-Instruct-AWQ-INT4", False),
        ("somebody/Llama-3.1-405B-Instruct-tuned", True),
        ("/models/Llama-3.1-405B-Instruct-FP8", True),  # a path may hold anything
    ],
)
def test_other_formats_of_the_named_model_do_not_get_its_verdict(served: str, *, same_weights: bool) -> None:
    line = f"vllm serve {served} -tp 8"
    if same_weights:
        assert penstock.preflight("llama-3.1-405b", on="mi300x:8", command=line).answers
        return
    with pytest.raises(UsageError, match="leave the model out"):
        penstock.preflight("llama-3.1-405b", on="mi300x:8", command=line)
