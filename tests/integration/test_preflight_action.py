"""The GitHub Action on a recorded pull-request event: it checks the changed launch lines and comments, on loopback."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest
import yaml

REPOSITORY = Path(__file__).parents[2]
ACTION = REPOSITORY / ".github/actions/preflight"
BEFORE = """#!/bin/bash
vllm serve meta-llama/Llama-3.3-70B-Instruct \\
  --tensor-parallel-size 8
python -m sglang.launch_server --model-path Qwen/Qwen3-32B --tp 2
"""
AFTER = """#!/bin/bash
vllm serve meta-llama/Llama-3.3-70B-Instruct \\
  --tensor-parallel-size 8 \\
  --swap-space 4
python -m sglang.launch_server --model-path Qwen/Qwen3-32B --tp 2
# penstock: mi300x:8
vllm serve meta-llama/Llama-3.1-8B-Instruct --served-model-name 'a`b|c'
vllm serve nobody/knows-this
"""


class Api(BaseHTTPRequestHandler):
    """The two calls of GitHub's API that the action makes."""

    comments: ClassVar[list[dict[str, Any]]] = []
    calls: ClassVar[list[str]] = []
    refuse: ClassVar[bool] = False

    def _answer(self, document: object, status: int = 200) -> None:
        body = json.dumps(document).encode()
        self.send_response(403 if self.refuse else status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _body(self) -> dict[str, Any]:
        self.calls.append(f"{self.command} {self.path}")
        assert self.headers["Authorization"] == "Bearer secret"
        return dict(json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}"))

    def do_GET(self) -> None:
        self._body()
        self._answer(self.comments)

    def do_POST(self) -> None:
        self.comments.append({"id": 7, **self._body()})
        self._answer({}, 201)

    def do_PATCH(self) -> None:
        self.comments[-1].update(self._body())
        self._answer({})

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(Api, "comments", [{"id": 3, "body": "Looks good."}])
    monkeypatch.setattr(Api, "calls", [])
    server = HTTPServer(("127.0.0.1", 0), Api)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def git(folder: Path, *words: str) -> str:
    own = ("-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false")
    return subprocess.run(
        ["git", *own, *words],  # noqa: S607
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of two commits, and the event of a pull request from the second to the first."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    shas = []
    for text in (BEFORE, AFTER):
        (folder / "serve.sh").write_text(text, encoding="utf-8")
        git(folder, "add", "serve.sh")
        git(folder, "commit", "--quiet", "--message=serve")
        shas.append(git(folder, "rev-parse", "HEAD"))
    event = json.loads((REPOSITORY / "tests/data/pull_request_event.json").read_text(encoding="utf-8"))
    event["pull_request"]["base"]["sha"], event["pull_request"]["head"]["sha"] = shas
    (tmp_path / "event.json").write_text(json.dumps(event), encoding="utf-8")
    return folder


def run(checkout: Path, api: str, **more: str) -> subprocess.CompletedProcess[str]:
    inputs = yaml.safe_load((ACTION / "action.yml").read_text(encoding="utf-8"))["inputs"]
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "GITHUB_EVENT_PATH": str(checkout.parent / "event.json"),
        "GITHUB_STEP_SUMMARY": str(checkout.parent / "summary.md"),
        "GITHUB_OUTPUT": str(checkout.parent / "output"),
        "GITHUB_API_URL": api,
        "GITHUB_TOKEN": "secret",
        "PREFLIGHT_ON": "h100:8",
        "PREFLIGHT_FILES": inputs["files"]["default"],
        "PREFLIGHT_STRICT": inputs["strict"]["default"],
        "PREFLIGHT_OPTIONS": inputs["options"]["default"],
        "PREFLIGHT_COMMENT": inputs["comment"]["default"],
        **more,
    }
    return subprocess.run(
        [sys.executable, str(ACTION / "comment_verdict.py")],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_changed_launch_lines_are_checked_and_the_comment_is_replaced(checkout: Path, api: str) -> None:
    done = run(checkout, api)
    assert done.returncode == 1, done.stderr
    (_, comment) = Api.comments
    body = comment["body"]
    assert body.startswith(
        "<!-- penstock preflight -->\n### Penstock preflight: 1 of 3 changed launch lines fail, 1 not checked\n"
    )
    assert "| `serve.sh:2` | 8 x h100_sxm, vllm 0.32.0 | **does not run** |" in body
    assert "flag: --swap-space was removed in 0.18.0" in body
    assert "Launch that would run:\n\n````sh\nvllm serve" in body
    assert "| `serve.sh:7` | 1 x mi300x, vllm 0.32.0 | runs" in body
    assert "| `serve.sh:8` | 1 x h100_sxm, vllm 0.32.0 | **not checked** |" in body
    assert "the catalog does not have nobody/knows-this" in body
    assert "Qwen" not in body
    assert (checkout.parent / "summary.md").read_text(encoding="utf-8") == body
    assert (checkout.parent / "output").read_text(encoding="utf-8") == "passes=false\n"
    # A second run replaces the comment and leaves those of others alone.
    run(checkout, api)
    assert len(Api.comments) == 2
    assert Api.calls[-1] == "PATCH /repos/octocat/serving/issues/comments/7"


def test_strict_fails_lines_that_pass_otherwise(checkout: Path, api: str) -> None:
    (checkout / "serve.sh").write_text("vllm serve meta-llama/Llama-3.1-8B-Instruct\n", encoding="utf-8")
    git(checkout, "commit", "--quiet", "--all", "--message=one line")
    event = json.loads((checkout.parent / "event.json").read_text(encoding="utf-8"))
    event["pull_request"]["head"]["sha"] = git(checkout, "rev-parse", "HEAD")
    (checkout.parent / "event.json").write_text(json.dumps(event), encoding="utf-8")
    assert run(checkout, api, PREFLIGHT_ON="mi300x", PREFLIGHT_COMMENT="false").returncode == 0
    strict = run(checkout, api, PREFLIGHT_ON="mi300x", PREFLIGHT_STRICT="true", PREFLIGHT_COMMENT="false")
    assert strict.returncode == 1
    assert "`--strict`: undetermined: host-mec-firmware" in strict.stdout
    assert Api.calls == []


def test_a_token_that_may_not_comment_is_a_notice(checkout: Path, api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Api, "refuse", True)
    done = run(checkout, api)
    assert done.returncode == 1
    assert "::notice::" in done.stdout
    assert "Traceback" not in done.stderr


def test_an_event_without_a_pull_request_checks_nothing(checkout: Path, api: str) -> None:
    (checkout.parent / "event.json").write_text("{}", encoding="utf-8")
    done = run(checkout, api)
    assert done.returncode == 0
    assert "no pull request" in done.stdout


def test_the_action_passes_every_input_to_the_script() -> None:
    action = yaml.safe_load((ACTION / "action.yml").read_text(encoding="utf-8"))
    install, check = action["runs"]["steps"]
    used = " ".join([install["if"], *install["env"].values(), *check["env"].values()])
    assert {name for name in action["inputs"] if f"inputs.{name}" in used} == set(action["inputs"])
    script = (ACTION / "comment_verdict.py").read_text(encoding="utf-8")
    assert [name for name in check["env"] if f'"{name}"' not in script] == []
    # No input is expanded into a shell command.
    assert "${{" not in install["run"] + check["run"]
