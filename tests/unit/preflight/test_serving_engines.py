"""Engines that a plan can choose besides vLLM and SGLang: ATOM, its plug-ins, and TensorRT-LLM."""

import shutil
import subprocess
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from penstock import fit, preflight
from penstock.api.answer import ApiAnswer
from penstock.catalog import load_accelerator
from penstock.checkpoint import open_checkpoint
from penstock.errors import UsageError
from penstock.fleet import Parallelism, Release
from penstock.fleet.engines import NEWEST
from penstock.fleet.fleet_file import read_fleet
from penstock.fleet.pools import NodeGroup, Pool, PoolEngine
from penstock.fleet.serving_engines import ENGINES, ServingEngine, serving_defaults, usual_settings
from penstock.model.model_spec import model_as_measured
from penstock.preflight import LaunchChoices, Preflight, PreflightQuestion, Readiness, check, load_knowledge
from penstock.preflight.facts.launch_command import parse_command
from penstock.preflight.facts.published_format import published_format
from penstock.preflight.facts.stated_split import stated_split
from penstock.preflight.facts.subject import subject_of
from penstock.preflight.launch.server_program import program_of
from penstock.preflight.pool_check import check_pool, place_replica
from penstock.preflight.rules.rule import Reference
from penstock.preflight.strict_failures import strict_failures

CHAT = Path(__file__).parents[3] / "examples" / "fleets" / "chat-h100-mi300x.yaml"

KNOWLEDGE = load_knowledge()
PLUGGED: tuple[ServingEngine, ...] = ("vllm-atom", "sglang-atom", "atom", "trtllm")
PART: dict[ServingEngine, str] = {"trtllm": "b200"}


def printed(answer: ApiAnswer) -> str:
    console = Console(file=StringIO(), width=120, color_system=None)
    console.print(answer.render(120))
    assert isinstance(console.file, StringIO)
    return " ".join(console.file.getvalue().split())


SPLITS = st.builds(
    Parallelism,
    tp=st.sampled_from((1, 2, 4, 8)),
    dp=st.sampled_from((1, 2)),
    expert_parallel=st.booleans(),
)


def asked(
    model: str,
    engine: ServingEngine,
    *,
    on: str | None = None,
    split: Parallelism | None = None,
    version: str | None = None,
    kv: str | None = None,
    drafted: int = 0,
) -> Preflight:
    question = PreflightQuestion(
        subject=subject_of(open_checkpoint(model), model),
        accelerator=load_accelerator(on or PART.get(engine, "mi355x")),
        engine=engine,
        version=Release(version) if version else NEWEST[engine],
        asked=LaunchChoices(
            parallelism=split or Parallelism(tp=8), cache_dtype=kv, context_tokens=8192, drafted_tokens=drafted
        ),
    )
    return check(question, KNOWLEDGE)


@settings(max_examples=40, deadline=None)
@given(
    engine=st.sampled_from(PLUGGED),
    split=SPLITS,
    kv=st.sampled_from((None, "fp8", "fp8_e4m3")),
    drafted=st.sampled_from((0, 1, 3)),
)
def test_every_printed_command_parses_and_has_only_flags_of_its_server(
    engine: ServingEngine, split: Parallelism, kv: str | None, drafted: int
) -> None:
    answer = asked("deepseek-r1", engine, split=split, kv=kv, drafted=drafted)
    assert not [flag for flag in answer.flags if flag.stops], answer.flags
    bash = shutil.which("bash")
    assert bash is not None
    for command in (answer.plan.bare(), answer.plan.docker()):
        assert command is not None
        read = subprocess.run([bash, "-n"], input=command, text=True, capture_output=True, check=False)
        assert read.returncode == 0, read.stderr
        named, launch = parse_command(command)
        # A bare `vllm serve` does not say that a plug-in is installed.
        assert named == engine or (engine == "vllm-atom" and named == "vllm" and command == answer.plan.bare())
        assert launch.flag("model-path") == "deepseek-ai/DeepSeek-R1"


@given(split=SPLITS, engine=st.sampled_from(("vllm-atom", "sglang-atom", "atom")))
@settings(max_examples=30, deadline=None)
def test_the_printed_split_is_the_requested_split(split: Parallelism, engine: ServingEngine) -> None:
    command = asked("deepseek-r1", engine, split=split).plan.bare()
    stated = stated_split(parse_command(command)[1], engine)
    if engine == "sglang-atom" and split.expert_parallel and split.devices == 1:
        return  # One rank holds every expert, so that there is nothing to spread.
    assert ((stated.tp or 1), stated.dp, stated.spreads_experts) == (split.tp, split.dp, split.expert_parallel)


@pytest.mark.parametrize("engine", PLUGGED)
def test_an_engine_says_what_it_is_and_what_is_not_known(engine: ServingEngine) -> None:
    answer = preflight("deepseek-r1", f"{PART.get(engine, 'mi355x')}:8", engine=engine)
    assert ENGINES[engine].what in printed(answer)
    assert answer.answers[0].unknown
    assert any("assumed" in text for text in answer.answers[0].unknown)
    assert answer.document()["deployments"][0]["not_known"]  # type: ignore[index] # a JSON document
    for source in KNOWLEDGE.engines[engine]["sources"]:
        assert Reference(source).url is not None


def test_measurements_decide_what_kernels_cannot() -> None:
    measured = asked("deepseek-r1", "atom")
    assert measured.measured_as_asked
    assert measured.readiness is Readiness.RUNS
    other = asked("deepseek-r1", "sglang-atom")
    assert other.readiness is Readiness.UNDETERMINED
    assert strict_failures(measured)
    assert strict_failures(other)


@pytest.mark.parametrize(("engine", "on"), [("atom", "h200"), ("vllm-atom", "b200"), ("trtllm", "mi355x")])
def test_an_engine_of_the_other_vendor_does_not_run(engine: ServingEngine, on: str) -> None:
    answer = asked("deepseek-r1", engine, on=on)
    assert answer.readiness is Readiness.BLOCKED
    assert answer.plan.image is None


def test_a_closed_registry_refuses_what_it_does_not_list() -> None:
    answer = asked("qwen2.5-72b", "atom", on="mi300x")
    assert [stop.kind for stop in answer.obstacles] == ["architecture"]
    assert "atom 0.1.6rc0 does not register Qwen2ForCausalLM" in answer.obstacles[0].text
    assert not asked("qwen2.5-72b", "vllm-atom", on="mi300x").obstacles


def test_an_image_of_atom_is_exact_only_for_a_release_with_a_known_tag() -> None:
    exact, newest = asked("deepseek-r1", "atom", version="0.1.4").plan, asked("deepseek-r1", "atom").plan
    assert exact.image is not None
    assert "atom0.1.4" in exact.image
    assert newest.image == "rocm/atom-dev:latest"


@given(engine=st.sampled_from(tuple(ENGINES)), tp=st.sampled_from((1, 2, 4, 8)), pp=st.sampled_from((1, 2)))
def test_the_usual_settings_of_defaults_are_the_defaults(engine: ServingEngine, tp: int, pp: int) -> None:
    accelerator = load_accelerator("mi355x")
    usual = serving_defaults(engine, accelerator, tp=tp, pp=pp)
    assert usual_settings(usual, accelerator, tp=tp, pp=pp) == usual
    assert (usual.stands_for is None) == (engine in {"vllm", "sglang"})


@pytest.mark.parametrize("engine", PLUGGED)
def test_fit_names_the_memory_rules_that_it_assumes(engine: ServingEngine) -> None:
    answer = fit("llama-3.1-70b", f"{PART.get(engine, 'mi300x')}:2", engine=engine)
    assert f"assumed: the memory rules of {ENGINES[engine].memory_rules}" in printed(answer)
    assert {report.tier for report in answer.reports} == {"transferred"}


def test_an_unknown_engine_is_refused_with_the_names() -> None:
    with pytest.raises(UsageError, match="use one of vllm, sglang, vllm-atom, sglang-atom, atom, trtllm"):
        preflight("llama-3.1-8b", "h100", engine="triton")


def pool(**changes: object) -> Pool:
    usual = Pool(
        name="chat",
        model="llama-3.1-8b",
        weights="bf16",
        kv="bf16",
        accelerator="mi300x",
        vendor="amd",
        site="here",
        replicas=2,
        split=Parallelism(),
        engine=PoolEngine(name="vllm", version="0.32.0"),
    )
    return replace(usual, **changes)  # type: ignore[arg-type] # fields of Pool


def checked(asked_pool: Pool) -> Preflight:
    subject = subject_of(open_checkpoint(asked_pool.model), asked_pool.model)
    converted = model_as_measured(subject.model, asked_pool.weights)
    return check_pool(asked_pool, load_accelerator(asked_pool.accelerator), subject, converted, KNOWLEDGE)


def test_a_pool_is_launched_under_the_name_of_the_published_weights() -> None:
    assert "meta-llama/Llama-3.1-8B-Instruct" in checked(pool()).plan.bare()
    converted = checked(pool(weights="fp8")).plan.bare()
    assert "meta-llama/Llama-3.1-8B-Instruct" in converted
    assert "--quantization fp8" in converted
    atom = PoolEngine(name="atom", version="unstated")
    assert "RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic" in checked(pool(weights="fp8", engine=atom)).plan.bare()
    unpublished = checked(pool(model="qwen2.5-32b", weights="fp8", engine=atom)).plan.bare()
    assert "YOUR-FP8-CHECKPOINT" in unpublished


@pytest.mark.parametrize("engine", ["vllm", "sglang", "vllm-atom", "sglang-atom", "atom"])
def test_a_replica_answers_to_the_name_in_the_fleet_file(engine: ServingEngine) -> None:
    """A gateway refuses replicas that serve another name, and clients ask for the name in the fleet file."""
    launch = checked(pool(engine=PoolEngine(name=engine, version="unstated"))).plan.bare()
    assert ("--served-model-name llama-3.1-8b" in launch) == (engine != "atom")
    published = pool(model="meta-llama/Llama-3.1-8B-Instruct")
    assert "--served-model-name" not in checked(published).plan.bare()


@pytest.mark.parametrize(
    ("model", "weights", "found"),
    [
        ("llama-3.1-70b", "fp8", "nvidia/Llama-3.1-70B-Instruct-FP8"),
        ("qwen3-32b", "fp8", "Qwen/Qwen3-32B-FP8"),
        ("qwen3-235b-a22b", "fp8", "Qwen/Qwen3-235B-A22B-FP8"),
        ("qwen2.5-32b", "fp8", None),
        ("llama-3.1-70b", "mxfp4", None),
        ("/no/such/checkpoint", "fp8", None),
    ],
)
def test_a_published_checkpoint_has_the_weights_of_the_model_in_the_format(
    model: str, weights: str, found: str | None
) -> None:
    """Weights of another version of the model (qwen3-235b-a22b-2507-fp8) are other weights."""
    subject = published_format(model, weights)
    assert (None if subject is None else subject.name) == found


def test_settings_of_a_pool_become_flags_if_they_differ_from_the_defaults() -> None:
    stated = PoolEngine(
        name="vllm",
        version="0.32.0",
        settings={"max_num_seqs": 77, "gpu_memory_utilization": 0.92, "enable_prefix_caching": False},
    )
    command = checked(pool(engine=stated)).plan.bare()
    assert "--max-num-seqs 77" in command
    assert "--no-enable-prefix-caching" in command
    assert "--gpu-memory-utilization" not in command


def test_replicas_on_one_machine_have_their_own_devices_and_ports() -> None:
    """Attack: eight replicas of a node were all printed with all devices and the same port."""
    shared = pool(accelerator="h100_sxm", vendor="nvidia", replicas=8, split=Parallelism(tp=2))
    placed = place_replica(checked(shared), shared, None).plan
    assert placed.place is not None
    assert (placed.place.devices, placed.place.replicas) == ((0, 1), 4)
    assert """--gpus '"device=0,1"'""" in str(placed.docker())
    assert placed.bare().startswith("CUDA_VISIBLE_DEVICES=0,1")
    amd = pool(endpoints=("chat:8000",), engine=PoolEngine(name="sglang", version="0.5.18"))
    placed = place_replica(checked(amd), amd, None).plan
    assert "-e HIP_VISIBLE_DEVICES=0 " in str(placed.docker()).replace("\\\n", " ")
    assert "-p 8000:30000" in str(placed.docker())
    assert "--port 8000" in placed.bare()
    alone = pool(split=Parallelism(tp=8))
    assert place_replica(checked(alone), alone, None).plan.place is None


def test_an_instance_that_holds_one_replica_shares_nothing() -> None:
    """Attack: a replica on a rented instance of two devices was the first of four on a machine."""
    rented = pool(accelerator="h100_sxm", vendor="nvidia", replicas=8, split=Parallelism(tp=2))
    sizes = [NodeGroup(accelerator="h100_sxm", site=rented.site, nodes=8, node_devices=size) for size in (1, 2)]
    fleet = replace(read_fleet(CHAT.read_text(), CHAT.name), nodes=tuple(sizes), pools=(rented,), routes=())
    assert fleet.machine_devices(rented) == 2
    assert place_replica(checked(rented), rented, 2).plan.place is None


def test_a_pool_with_a_version_that_does_not_parse_is_refused_with_its_name() -> None:
    with pytest.raises(UsageError, match="pool 'chat': 'newest' is not a version"):
        checked(pool(engine=PoolEngine(name="vllm", version="newest")))


def test_a_pool_with_a_cache_type_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match="pool 'chat': kv is 'zebra'; write one of bf16, fp16, fp8"):
        checked(pool(kv="zebra"))


def test_a_fleet_is_checked_pool_by_pool(tmp_path: Path) -> None:
    answer = preflight(fleet=CHAT)
    assert answer.good
    assert [pool.name for pool in answer.pools if pool] == ["h100", "mi300x"]
    assert "2 of 2 pools pass" in printed(answer)
    assert preflight(fleet=CHAT, strict=True).good
    edited = tmp_path / "fleet.yaml"
    edited.write_text(
        CHAT.read_text(encoding="utf-8").replace("name: vllm", "name: trtllm").replace("0.32.0", "unstated")
    )
    assert preflight(fleet=edited).exit_code == 4
    assert preflight(fleet=edited, strict=True).exit_code == 1
    with pytest.raises(UsageError, match="leave out --on"):
        preflight(on="h100", fleet=CHAT)


def test_strict_fails_on_a_release_that_was_not_read() -> None:
    assert preflight("llama-3.1-8b", "h100", strict=True).good
    assert preflight("llama-3.1-8b", "h100", engine_version="0.40.0").good
    assert not preflight("llama-3.1-8b", "h100", engine_version="0.40.0", strict=True).good


@pytest.mark.parametrize("engine", PLUGGED)
def test_a_flag_is_spelled_as_its_server_spells_it(engine: ServingEngine) -> None:
    spell = program_of(engine).spell
    assert spell("tp-size") == ("tp_size" if engine == "trtllm" else "tp-size")
    assert spell("kv-cache-dtype") == ("kv_cache_dtype" if engine in {"atom", "trtllm"} else "kv-cache-dtype")
