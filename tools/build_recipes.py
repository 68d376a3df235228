"""What do vLLM's published recipes say? Writes preflight/data/recipes.toml from a clone: flags, variables and hardware.

`python tools/build_recipes.py --recipes DIR`. Facts only: guides and their sentences stay where they are.
"""

import argparse
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
WRITTEN = ROOT / "src/penstock/preflight/data/recipes.toml"
HEAD = """# What vLLM's recipes say of each model: its first release, hardware status, the flags and variables it is
# served with, the parsers for tools and reasoning, and what a vendor or a generation of chips adds.
# From vllm-project/recipes at {commit} ({date}, Apache-2.0), facts only; written by tools/build_recipes.py.
"""
# What a deployment decides for itself: sizes, addresses, places on one machine.
LEFT_OUT = frozenset({
    "allowed-local-media-path", "chat-template", "data-parallel-size", "distributed-executor-backend",
    "gpu-memory-utilization", "host",
    "max-model-len", "max-num-batched-tokens", "max-num-seqs", "pipeline-parallel-size", "port", "served-model-name",
    "tensor-parallel-size",
})  # fmt: skip
GENERATIONS = ("nvidia", "hopper", "blackwell", "amd")


def git(clone: Path, *arguments: str) -> str:
    """Read from the clone."""
    command = ["git", "-C", str(clone), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603 - no shell


def flags(arguments: Sequence[object] | None) -> list[str]:
    """Join flags with their values as `--name value`, in the long spelling, without what a deployment decides."""
    kept: list[list[str]] = []
    for word in (str(argument) for argument in arguments or ()):
        for piece in word.split(" ", 1) if word.startswith("--") and " " in word else [word]:
            if piece.startswith("--"):
                name, equals, value = piece.removeprefix("--").partition("=")
                kept.append([name.replace("_", "-"), *([value] if equals else [])])
            elif kept and not piece.startswith("-"):
                kept[-1].append(piece)
    return [" ".join(entry) for entry in kept if entry[0] not in LEFT_OUT and "." not in entry[0]]


def entry(document: Mapping[str, Any], variant: Mapping[str, Any]) -> Iterator[str]:
    """Write one repository: the recipe, and what the variant adds."""
    model = document["model"]
    yield f'since = "{model["min_vllm_version"]}"' if model.get("min_vllm_version") else "# no first release is named"
    hardware = (document["meta"].get("hardware") or {}).items()
    yield "hardware = { " + ", ".join(f'{name} = "{status}"' for name, status in hardware) + " }"
    yield from pairs("", flags(model.get("base_args")) + flags(variant.get("extra_args")),
                     {**(model.get("base_env") or {}), **(variant.get("extra_env") or {})})  # fmt: skip
    features = document.get("features") or {}
    for name, key in (("tools", "tool_calling"), ("reasoning", "reasoning")):
        found = flags((features.get(key) or {}).get("args"))
        if found and key not in (document.get("opt_in_features") or ()):
            yield f"{name} = {listed(found)}"
    limit = ((document.get("strategy_overrides") or {}).get("single_node_tp") or {}).get("tp")
    if isinstance(limit, int):
        yield f"most_tp = {limit}"
    overrides = document.get("hardware_overrides") or {}
    for name in GENERATIONS:
        added = overrides.get(name) or {}
        yield from pairs(f"{name}_", flags(added.get("extra_args")), added.get("extra_env") or {})


def pairs(prefix: str, found: list[str], variables: Mapping[str, object]) -> Iterator[str]:
    """Write flags and variables, where there are any."""
    if found:
        yield f"{prefix}flags = {listed(found)}"
    if variables:
        yield (
            f"{prefix}variables = {{ "
            + ", ".join(f"{name} = {text(str(value))}" for name, value in variables.items())
            + " }"
        )


def listed(values: list[str]) -> str:
    """Write a list."""
    return "[" + ", ".join(text(value) for value in values) + "]"


def text(value: str) -> str:
    """Write a string; values may hold JSON."""
    return f"'{value}'" if '"' in value else f'"{value}"'


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipes", type=Path, required=True)
    clone = parser.parse_args().recipes
    commit, date = git(clone, "log", "-1", "--format=%h %cs", "--abbrev=12").split()
    written: dict[str, str] = {}
    for path in git(clone, "ls-tree", "-r", "--name-only", "HEAD", "models").split():
        document = yaml.safe_load(git(clone, "show", f"HEAD:{path}")) if path.endswith(".yaml") else None
        if document is None:
            continue
        for variant in (document.get("variants") or {"default": {}}).values():
            name = str((variant or {}).get("model_id") or document["model"]["model_id"])
            lines = [line for line in entry(document, variant or {}) if not line.startswith("#")]
            written.setdefault(name, "\n".join(lines))
    body = "\n".join(f'\n["{name}"]\n{written[name]}' for name in sorted(written, key=str.lower))
    WRITTEN.write_text(HEAD.format(commit=commit, date=date) + body + "\n", encoding="utf-8")
    print(f"{len(written)} repositories")


if __name__ == "__main__":
    main()
