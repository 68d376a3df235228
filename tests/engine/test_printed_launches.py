"""What preflight prints, given to a real vLLM: its parser takes every command, and it starts on the CPU (ten minutes).

PENSTOCK_VLLM names the Python of an environment with vLLM, as `tools/install_vllm.sh` builds it.
"""

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.server import Server, environment, wait_until_ready
from engine.tiny_llama import word_tokenizer
from engine.tiny_models import ARCHITECTURES, TINY
from penstock.catalog import load_accelerator, load_models
from penstock.checkpoint import open_checkpoint
from penstock.fleet import Parallelism
from penstock.fleet.engines import NEWEST, EngineName
from penstock.preflight import LaunchChoices, Preflight, PreflightQuestion, check, load_knowledge, parse_command
from penstock.preflight.facts.subject import smallest_split, subject_of
from ports import free_ports

pytestmark = pytest.mark.engine
STARTED = ("llama", "qwen2", "qwen3", "mistral", "olmo2", "granite")
ACCELERATORS = ("h100", "b200", "mi300x", "mi355x")
PARSED = """
import json, sys
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = make_arg_parser(FlexibleArgumentParser())
for line in json.load(sys.stdin):
    try:
        parser.parse_args(line[2:])
    except SystemExit:
        print(json.dumps(line))
"""


PARSED_BY_SGLANG = """
import argparse, importlib.abc, importlib.machinery, json, sys, types
from unittest.mock import MagicMock

class Absent(types.ModuleType):
    __path__ = []
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock(name=name)

class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    # What the parser's module imports and a machine without a GPU has not.
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in {"IPython", "orjson", "triton", "sgl_kernel", "torchvision"}:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
    def create_module(self, spec):
        return Absent(spec.name)
    def exec_module(self, module):
        pass

sys.meta_path.append(StandIns())
from sglang.srt.server_args import ServerArgs
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
for line in json.load(sys.stdin):
    try:
        parser.parse_args(line)
    except SystemExit:
        print(json.dumps(line))
"""


@pytest.fixture(scope="module")
def python() -> str:
    named = os.environ.get("PENSTOCK_VLLM")
    if not named:
        pytest.skip("PENSTOCK_VLLM does not name the Python of an environment with vLLM")
    return named


def asked(name: str, on: str, command: str | None = None, engine: EngineName = "vllm") -> Preflight:
    subject, accelerator = subject_of(open_checkpoint(name), name), load_accelerator(on)
    question = PreflightQuestion(
        subject=subject,
        accelerator=accelerator,
        engine=engine,
        version=NEWEST[engine],
        asked=LaunchChoices(
            parallelism=smallest_split(subject, accelerator, None, engine) if command is None else Parallelism()
        ),
        launch=None if command is None else parse_command(command)[1],
    )
    return check(question, load_knowledge())


def words(answer: Preflight) -> list[str]:
    """The command as a shell would pass it on, without variables."""
    line = shlex.split(answer.plan.bare().replace("\\\n", " "))
    return line[line.index("vllm") :]


def test_the_engines_own_parser_takes_every_printed_command(python: str) -> None:
    lines = [words(asked(known.id, accelerator)) for known in load_models() for accelerator in ACCELERATORS]
    assert len(lines) >= 4 * 76
    done = subprocess.run(
        [python, "-c", PARSED], input=json.dumps(lines), capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines() == [], done.stderr[-2000:]


def test_sglangs_own_parser_takes_every_printed_command() -> None:
    """PENSTOCK_SGLANG names the Python of an environment with sglang and a CPU build of torch."""
    if "PENSTOCK_SGLANG" not in os.environ:
        pytest.skip("PENSTOCK_SGLANG does not name the Python of an environment with SGLang")
    lines = []
    for known in load_models():
        for accelerator in ACCELERATORS:
            line = shlex.split(asked(known.id, accelerator, engine="sglang").plan.bare().replace("\\\n", " "))
            lines.append(line[line.index("sglang.launch_server") + 1 :])
    command = [os.environ["PENSTOCK_SGLANG"], "-c", PARSED_BY_SGLANG]
    done = subprocess.run(command, input=json.dumps(lines), capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines() == [], done.stderr[-2000:]


@pytest.fixture(scope="module")
def checkpoints(python: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {}
    for name in STARTED:
        folder = tmp_path_factory.mktemp(name)
        script = Path(__file__).parent / "tiny_models.py"
        subprocess.run([python, str(script), name, str(folder)], check=True, capture_output=True, timeout=300)
        (folder / "tokenizer.json").write_text(
            json.dumps(word_tokenizer(int(str(TINY["vocab_size"])))), encoding="utf-8"
        )
        kind = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<bos>", "eos_token": "<eos>"}
        (folder / "tokenizer_config.json").write_text(json.dumps(kind), encoding="utf-8")
        made[name] = folder
    return made


@contextmanager
def started(python: str, line: list[str], folder: Path) -> Iterator[Server]:
    """Run a printed command on the CPU, on loopback and a port of its own."""
    port, log = free_ports(1)[0], folder / "log"
    own = ["--host", "127.0.0.1", "--port", str(port)]
    command = [str(Path(python).parent / "vllm"), *line[1:], *own]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, cwd=folder, env=environment(folder)
        )
    try:
        yield Server(process, port, log)
    finally:
        process.terminate()
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.mark.parametrize("name", STARTED)
def test_the_printed_command_starts_and_answers(python: str, checkpoints: dict[str, Path], name: str) -> None:
    folder = checkpoints[name]
    answer = asked(str(folder), "h100")
    assert answer.passes
    with started(python, [*words(answer), "--enforce-eager", "--kv-cache-memory-bytes", "64M"], folder) as server:
        wait_until_ready(server)
        said = server.answer([5, 6, 7])
    assert said["usage"]["completion_tokens"] == 4
    assert name in ARCHITECTURES


def test_a_context_that_does_not_fit_is_refused_for_that_reason_and_the_suggested_one_starts(
    python: str, checkpoints: dict[str, Path]
) -> None:
    folder = checkpoints["llama"]
    # 2 layers x 2 (K, V) x 2 heads x 64 x 2 bytes = 1 KiB a token: 4,096 tokens take 4 MiB, and 2 MiB are given.
    typed = f"vllm serve {folder} --enforce-eager --kv-cache-memory-bytes 2M"
    answer = asked(str(folder), "h100", typed)
    (obstacle,) = answer.obstacles
    assert obstacle.kind == "context"
    assert answer.cut is not None
    with started(python, shlex.split(typed), folder) as server:
        assert server.process.wait(timeout=300) != 0
        log = server.log.read_text(encoding="utf-8")
    assert "To serve at least one request with the model's max seq len (4096)" in log
    estimated = re.search(r"estimated maximum model length is (\d+)", log)
    assert estimated is not None
    assert answer.cut.tokens <= int(estimated[1])
    with started(python, [*shlex.split(typed), "--max-model-len", str(answer.cut.tokens)], folder) as server:
        wait_until_ready(server)
        assert server.answer([5, 6, 7])["usage"]["completion_tokens"] == 4
