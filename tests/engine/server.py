"""How is a real vLLM started, bound to its core, read and stopped? Loopback only, in a private folder."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.tiny_llama import Shape, write_model
from ports import free_ports

_START_UP_S = 600.0
_CORES = sorted(os.sched_getaffinity(0))
"""Before an engine has taken one: engines that are started one after the other share the last core."""
_SAMPLE = re.compile(r"^(?P<name>vllm:\w+)\{(?P<labels>[^}]*)\} (?P<value>\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The flags that decide what the scheduler does."""

    max_model_len: int = 1024
    max_num_seqs: int = 16
    max_num_batched_tokens: int = 256
    block_size: int = 32
    kv_cache_blocks: int = 256
    """Blocks the cache is given memory for; the engine keeps one of them as its null block."""
    dtype: str = "bfloat16"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Clocks of the machine and of the engine's main thread, in seconds, to tell a quiet run from a disturbed one."""

    at_s: float
    engine_ran_s: float
    engine_waited_s: float
    """Ready to run while something else had the core."""
    stolen_s: float
    """Taken by the hypervisor, all cores together."""


class Server:
    """A running engine."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path, model: Path | None = None) -> None:
        self.process = process
        self.port = port
        self.log = log
        self.model = model

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as response:
            text: str = response.read().decode()
            return text

    def post(self, path: str) -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", data=b"", timeout=10):
            pass

    def answer(self, tokens: list[int]) -> dict[str, Any]:
        """Ask for four tokens after these."""
        body: dict[str, object] = {"prompt": tokens, "max_tokens": 4, "ignore_eos": True, "temperature": 0}
        models = json.loads(self.get("/v1/models"))
        body["model"] = models["data"][0]["id"]
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/completions",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=120) as response:  # noqa: S310 - loopback
            said: dict[str, Any] = json.loads(response.read())
            return said

    def counters(self) -> dict[str, float]:
        """Every counter and histogram sum of `/metrics` that has no label but the engine's and the model's."""
        samples = _SAMPLE.finditer(self.get("/metrics"))
        plain = re.compile(r'engine="0",model_name="\w+"')
        return {found["name"]: float(found["value"]) for found in samples if plain.fullmatch(found["labels"])}

    def num_blocks(self) -> int:
        """Blocks of the cache, the null block included."""
        found = re.search(r'vllm:cache_config_info\{[^}]*num_gpu_blocks="(\d+)"', self.get("/metrics"))
        if found is None:
            raise RuntimeError("the engine's metrics do not say how many blocks it has")
        return int(found[1])

    def version(self) -> str:
        found = re.search(r'"version":"([^"]+)"', self.get("/version"))
        return found[1] if found else "unknown"

    def engine_pid(self) -> int:
        children = (
            Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text(encoding="ascii").split()
        )
        engines = [
            int(pid) for pid in children if Path(f"/proc/{pid}/comm").read_text("ascii").startswith("VLLM::Engine")
        ]
        if len(engines) != 1:
            raise RuntimeError(f"expected one engine process under the server, found {len(engines)}")
        return engines[0]

    def load(self) -> Load:
        pid = self.engine_pid()
        ran, waited, _ = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text(encoding="ascii").split()
        cpu = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()
        return Load(
            at_s=time.perf_counter(),
            engine_ran_s=int(ran) / 1e9,
            engine_waited_s=int(waited) / 1e9,
            stolen_s=int(cpu[8]) / os.sysconf("SC_CLK_TCK"),
        )


@contextmanager
def serve(python: str, settings: Settings, *, shape: Shape) -> Iterator[Server]:
    """Start vLLM with that interpreter, give the engine a core of its own where there are two, and stop it at the end.

    The folder is in the shortest temporary place: the engine's sockets live there and a socket's path has 107 bytes.
    """
    folder = Path(tempfile.mkdtemp(prefix="engine-"))
    try:
        write_model(folder / "model", shape)
        with serve_folder(python, settings, shape=shape, model=folder / "model") as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def serve_folder(
    python: str,
    settings: Settings,
    *,
    shape: Shape,
    model: Path,
    extra: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
    one_core: bool = False,
) -> Iterator[Server]:
    """The same for a checkpoint that exists, with further flags and environment variables.

    With `one_core`, the engine has only its core from the beginning.
    """
    folder = Path(tempfile.mkdtemp(prefix="engine-"))
    log = folder / "log"
    port = free_ports(1)[0]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [python, "-m", "vllm.entrypoints.openai.api_server", *_flags(model, settings, shape, port), *extra],
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**environment(folder), **(variables or {})},
            preexec_fn=_to_the_last_core if one_core else None,  # noqa: PLW1509 - no other thread holds a lock
            # Linux shares a core between sessions before it does between processes: ours is not the client's.
            start_new_session=True,
        )
    try:
        server = Server(process, port, log, model)
        wait_until_ready(server)
        with _engine_on_a_core_of_its_own(server):
            yield server
    finally:
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _flags(model: Path, settings: Settings, shape: Shape, port: int) -> list[str]:
    flags = {
        "--model": model,
        "--served-model-name": "tiny",
        "--host": "127.0.0.1",
        "--port": port,
        "--dtype": settings.dtype,
        "--max-model-len": settings.max_model_len,
        "--max-num-seqs": settings.max_num_seqs,
        "--max-num-batched-tokens": settings.max_num_batched_tokens,
        "--block-size": settings.block_size,
        "--kv-cache-memory-bytes": settings.kv_cache_blocks
        * settings.block_size
        * _kv_bytes_per_token(settings, shape),
    }
    return ["--enforce-eager", "--disable-uvicorn-access-log", *(str(part) for flag in flags.items() for part in flag)]


def _kv_bytes_per_token(settings: Settings, shape: Shape) -> int:
    return shape.kv_bytes_per_token * (2 if settings.dtype == "float32" else 1)


def environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name in {"PATH", "LANG", "LD_LIBRARY_PATH"}}
    private = dict.fromkeys(("HOME", "TMPDIR", "VLLM_RPC_BASE_PATH"), str(folder))
    return {
        **kept,
        **private,
        "VLLM_HOST_IP": "127.0.0.1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        # The model runs inside the engine's process: with a worker beside it, the engine spins on shared memory
        # while the worker computes, and takes the core that the front end and the client need.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        # Opens `/pause` and `/resume`, with which requests are lined up before the first step.
        "VLLM_SERVER_DEV_MODE": "1",
        "OMP_NUM_THREADS": "1",
    }


def wait_until_ready(server: Server) -> None:
    deadline = time.monotonic() + _START_UP_S
    while time.monotonic() < deadline:
        if server.process.poll() is not None:
            raise RuntimeError(f"vLLM ended during start-up:\n{server.log.read_text(encoding='utf-8')[-4000:]}")
        try:
            server.get("/health")
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.5)
        else:
            return
    raise RuntimeError(
        f"vLLM was not ready after {_START_UP_S:.0f} s:\n{server.log.read_text(encoding='utf-8')[-4000:]}"
    )


@contextmanager
def _engine_on_a_core_of_its_own(server: Server) -> Iterator[None]:
    """The engine on the last core, its front end and this client on the others."""
    before = os.sched_getaffinity(0)
    others = set(_CORES[:-1]) or set(_CORES)
    _bind(server.engine_pid(), {_CORES[-1]})
    _bind(server.process.pid, others)
    _bind(os.getpid(), others)
    try:
        yield
    finally:
        _bind(os.getpid(), before)


def _to_the_last_core() -> None:
    os.sched_setaffinity(0, {_CORES[-1]})


def _bind(pid: int, cores: set[int]) -> None:
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), cores)
