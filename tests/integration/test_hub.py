"""The real hub client against a server on this machine that speaks the hub's protocol."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from conftest import Run
from penstock.checkpoint.hub import hub_config
from penstock.errors import CheckpointError

pytest.importorskip("huggingface_hub")

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "auto_map": {"AutoConfig": "evil.Config"},
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_hidden_layers": 1,
    "vocab_size": 128,
    "torch_dtype": "bfloat16",
}


class Hub(BaseHTTPRequestHandler):
    """Serves one repository with a config and nothing else, and remembers what was asked for."""

    asked: ClassVar[list[str]] = []

    def _answer(self, *, body: bool) -> None:
        self.asked.append(self.path)
        found = self.path.endswith("/config.json") and "/acme/small/" in self.path
        data = json.dumps(CONFIG).encode() if found else b"{}"
        self.send_response(200 if found else 404)
        if not found:
            self.send_header("X-Error-Code", "EntryNotFound" if "/acme/small/" in self.path else "RepoNotFound")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("ETag", '"abc"')
        self.send_header("X-Repo-Commit", "0" * 40)
        self.end_headers()
        if body:
            self.wfile.write(data)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment that points the client at the server."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Hub.asked.clear()
    yield {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_address[1]}", "HF_HOME": str(tmp_path)}
    server.shutdown()
    server.server_close()


def test_a_config_is_read_from_the_hub_and_no_code_is_asked_for(penstock: Run, hub: dict[str, str]) -> None:
    result = penstock("inspect", "hf:acme/small", "--json", env=hub)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["source"] == "hf:acme/small"
    assert any(path.endswith("/config.json") for path in Hub.asked)
    assert not [path for path in Hub.asked if path.endswith((".py", ".bin", ".safetensors"))]


def test_a_repository_that_does_not_exist_is_one_line(penstock: Run, hub: dict[str, str]) -> None:
    result = penstock("inspect", "hf:acme/missing", env=hub)
    assert result.returncode == 3
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("name", ["", "acme", "acme/../etc", "a b/c", "acme/small/extra", "https://x/y"])
def test_a_name_that_is_not_a_repository_is_refused_before_any_request(name: str) -> None:
    with pytest.raises(CheckpointError, match="not a hub repository"):
        hub_config(name)
