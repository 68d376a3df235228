"""What does a launch command say? Reads a pasted `vllm serve`, `sglang.launch_server` or `docker run` line."""

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Final

from penstock.errors import UsageError
from penstock.fleet.engine import EngineName
from penstock.preflight.facts.situation import Launch

_VARIABLE: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,127})=(.*)", re.DOTALL)
_IMAGE: Final = re.compile(r"[\w.-]+(/[\w.-]+)+:[\w.-]+")
_SHORT: Final = {"-tp": "tensor-parallel-size", "-pp": "pipeline-parallel-size", "-dp": "data-parallel-size"}
_SAME: Final = {
    "tp": "tensor-parallel-size",
    "tp-size": "tensor-parallel-size",
    "pp": "pipeline-parallel-size",
    "pp-size": "pipeline-parallel-size",
    "dp": "data-parallel-size",
    "dp-size": "data-parallel-size",
    "model": "model-path",
}
"""Names engines accept for one setting; facts use the long one."""
_MAX_COMMAND: Final = 20_000


def parse_command(text: str) -> tuple[EngineName | None, Launch]:
    """Read a launch line; what it starts decides the engine, and None means that it does not say."""
    if len(text) > _MAX_COMMAND:
        raise UsageError(f"--command: a launch line of {len(text):,} characters is beyond reason")
    try:
        tokens = shlex.split(text.replace("\\\n", " "))
    except ValueError as error:
        raise UsageError(f"--command: {error}; quote it as a shell would") from None
    environment, image = dict(_variables(tokens)), next((token for token in tokens if _IMAGE.fullmatch(token)), None)
    flags = {} if image is None and not tokens else dict(_flags(_after_program(tokens, image)))
    flags.update(_speculation(flags))
    return _engine(tokens, image), Launch(flags=flags, environment=environment, image=image)


def _engine(tokens: Sequence[str], image: str | None) -> EngineName | None:
    words = " ".join((*tokens, image or ""))
    if "sglang" in words:
        return "sglang"
    return "vllm" if "vllm" in words else None


def _variables(tokens: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Assignments before the program, and `-e NAME=VALUE` of docker."""
    leading = True
    for number, token in enumerate(tokens):
        match = _VARIABLE.fullmatch(token)
        given = number > 0 and tokens[number - 1] in {"-e", "--env"}
        if match and (leading or given):
            yield match[1], match[2]
        elif token.startswith(("-e", "--env=")) and (inline := _VARIABLE.fullmatch(token.split("=", 1)[-1])):
            yield inline[1], inline[2]
        elif token not in {"env", "export"}:
            leading = False


def _after_program(tokens: Sequence[str], image: str | None) -> Sequence[str]:
    """Skip docker's own options: the engine's come after the image."""
    return tokens[tokens.index(image) + 1 :] if image is not None and image in tokens else tokens


def _flags(tokens: Sequence[str]) -> Iterator[tuple[str, str]]:
    for number, token in enumerate(tokens):
        name, equals, value = token.partition("=")
        if name in _SHORT:
            key = _SHORT[name]
        elif name.startswith("--") and len(name) > 2:  # noqa: PLR2004 - `--` alone ends options
            key = name[2:].replace("_", "-")
            key = _SAME.get(key, key)
        else:
            continue
        following = tokens[number + 1] if number + 1 < len(tokens) else "--"
        yield key, value if equals else ("true" if following.startswith("-") else following)


def _speculation(flags: dict[str, str]) -> dict[str, str]:
    """Spell out vLLM's JSON, so that one fact covers both engines."""
    raw = flags.get("speculative-config")
    if raw is None:
        return {}
    try:
        config = json.loads(raw)
    except (ValueError, RecursionError):
        raise UsageError("--command: --speculative-config is not valid JSON") from None
    if not isinstance(config, dict):
        raise UsageError("--command: --speculative-config must be a JSON object")
    return {
        "speculative-num-draft-tokens": str(config.get("num_speculative_tokens", 0)),
        "speculative-method": str(config.get("method", "draft_model")),
    }
