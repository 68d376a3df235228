"""How each engine's server is started: its program, port and image entry point, and how it spells flags."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from shlex import quote
from typing import Final

from penstock.fleet.serving_engines import ENGINES, Server, ServingEngine


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerProgram:
    """The program of a server, its port, and the spelling of its flags."""

    command: str
    """Words before the model, such as `vllm serve`."""
    port: int
    listens: str = ""
    """Flag that makes the server reachable from outside its container. Empty if it is reachable by default."""
    underscores: bool = False
    """Whether every flag is written with underscores. A click command accepts no other spelling."""
    spelled: Mapping[str, str] = field(default_factory=dict)
    """Flags that the server spells differently from the name in the tables."""

    def start(self, model: str) -> str:
        """Return the program and the model."""
        return f"{self.command} {quote(model)}"

    def spell(self, name: str) -> str:
        """Return the flag as the server's parser accepts it."""
        return self.spelled.get(name, name.replace("-", "_") if self.underscores else name)


PROGRAMS: Final[Mapping[Server, ServerProgram]] = {
    "vllm": ServerProgram(
        command="vllm serve",
        port=8000,
    ),
    "sglang": ServerProgram(
        command="python3 -m sglang.launch_server --model-path",
        port=30000,
        listens="--host 0.0.0.0",
    ),
    "atom": ServerProgram(
        command="python3 -m atom.entrypoints.openai_server --model",
        port=8000,
        spelled={"kv-cache-dtype": "kv_cache_dtype"},
    ),
    "trtllm": ServerProgram(
        command="trtllm-serve",
        port=8000,
        listens="--host 0.0.0.0",
        underscores=True,
    ),
}
IMAGES_THAT_SERVE: Final[frozenset[ServingEngine]] = frozenset({"vllm"})
"""Engines whose official image starts the server by itself, so that a container command begins with the model."""


def program_of(engine: ServingEngine) -> ServerProgram:
    """Return the program of the engine's server."""
    return PROGRAMS[ENGINES[engine].server]
