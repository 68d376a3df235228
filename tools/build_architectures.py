"""Since when does an engine know an architecture? Writes preflight/data/architectures.toml from their registries.

Needs clones with their tags, and a folder of an installed vLLM for releases after the last tag:
`python tools/build_architectures.py --vllm DIR --sglang DIR [--installed FOLDER --installed-release 0.32.0]`.
"""

import argparse
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from penstock.fleet.release import Release
from penstock.model.architectures import ARCHITECTURES

ROOT = Path(__file__).resolve().parent.parent
WRITTEN = ROOT / "src/penstock/preflight/data/architectures.toml"
REGISTERED = {
    "MiniMaxM3ForCausalLM": "MiniMaxM3SparseForConditionalGeneration",
    "Step3p7FlashForCausalLM": "Step3p7ForConditionalGeneration",
}
HEAD = """# The first release whose registry lists each architecture, by engine: a release before it refuses it.
# Read at every release tag by tools/build_architectures.py. "0.4.0" (vLLM) and "0.3.0" (SGLang) mean that or earlier.
# An architecture that is missing was in no registry: the engine falls back on Transformers' own code, if that has it.

# Trimmed configs that circulate name the decoder; the registries have the checkpoint's own class, dated here for both.
[registered]
"""


def git(clone: Path, *arguments: str) -> str:
    """Read from a clone."""
    command = ["git", "-C", str(clone), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout  # noqa: S603 - no shell


def releases(clone: Path, first: str) -> list[str]:
    """List release tags, candidates left out, oldest first."""
    tags = [tag for tag in git(clone, "tag").split() if re.fullmatch(r"v[\d.]+(\.?post\d+)?", tag)]
    return sorted((tag for tag in tags if Release(tag) >= Release(first)), key=lambda tag: Release(tag).key)


def vllm_names(text: str) -> set[str]:
    """Read the keys of a registry."""
    return set(re.findall(r'^\s*"([A-Z]\w+)":\s*\(?', text, re.MULTILINE))


def vllm(clone: Path) -> Iterator[tuple[str, set[str]]]:
    """Yield each release of vLLM with what it knows."""
    for tag in releases(clone, "0.4.0"):
        folder = f"{tag}:vllm/model_executor/models"
        text = git(clone, "show", f"{folder}/registry.py") or git(clone, "show", f"{folder}/__init__.py")
        yield tag, vllm_names(text)


def sglang(clone: Path) -> Iterator[tuple[str, set[str]]]:
    """Yield each release of SGLang with what it knows: the classes of its model files."""
    for tag in releases(clone, "0.3.0"):
        found = git(
            clone, "grep", "-hE", r"^EntryClass|^    [A-Z]\w+,$|^class \w+", tag, "--", "python/sglang/srt/models/"
        )
        yield tag, set(re.findall(r"\b([A-Z]\w+(?:ForCausalLM|ForConditionalGeneration))\b", found))


def first_releases(history: Iterator[tuple[str, set[str]]]) -> dict[str, str]:
    """Return the first release of each architecture this project reads."""
    found: dict[str, str] = {}
    for tag, names in history:
        for architecture in ARCHITECTURES:
            if REGISTERED.get(architecture, architecture) in names:
                found.setdefault(architecture, tag.removeprefix("v"))
    return found


def table(engine: str, found: dict[str, str], last: str) -> list[str]:
    """Write one engine's table."""
    lines = [f"\n[{engine}]", f'last_read = "{last}"']
    return lines + [f'{name} = "{release}"' for name, release in sorted(found.items())]


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vllm", type=Path, required=True)
    parser.add_argument("--sglang", type=Path, required=True)
    parser.add_argument("--installed", type=Path)
    parser.add_argument("--installed-release", default="")
    named = parser.parse_args()
    known, last = first_releases(vllm(named.vllm)), releases(named.vllm, "0.4.0")[-1].removeprefix("v")
    if named.installed is not None:
        text = (named.installed / "model_executor/models/registry.py").read_text(encoding="utf-8")
        later = first_releases(iter([(named.installed_release, vllm_names(text))]))
        known, last = {**later, **known}, named.installed_release
    lines = table("vllm", known, last)
    lines += table(
        "sglang", first_releases(sglang(named.sglang)), releases(named.sglang, "0.3.0")[-1].removeprefix("v")
    )
    spellings = [f'{name} = "{registered}"' for name, registered in REGISTERED.items()]
    WRITTEN.write_text(HEAD + "\n".join((*spellings, *lines)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
