"""Writes the tables of vLLM and SGLang in preflight/data/architectures.toml: the first release of each architecture.

Needs clones with their tags, and a directory of data packs for the releases after the last tag:
`python tools/build_architectures.py --vllm DIR --sglang DIR --packs DIR`. The tables of other engines stay as they are.
"""

import argparse
import re
import subprocess
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from penstock.fleet.release import Release
from penstock.preflight.packs.pack_files import packs_in

ROOT = Path(__file__).resolve().parent.parent
WRITTEN = ROOT / "src/penstock/preflight/data/architectures.toml"
REGISTERED = {
    "MiniMaxM3ForCausalLM": "MiniMaxM3SparseForConditionalGeneration",
    "Step3p7FlashForCausalLM": "Step3p7ForConditionalGeneration",
}
NAME = re.compile(r"[A-Z]\w+For(CausalLM|ConditionalGeneration)")


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


def learned_releases(folder: Path, engine: str, after: str) -> Iterator[tuple[str, set[str]]]:
    """Yield each release after one that has a data pack, with what it knows, oldest first."""
    packs = [pack for pack in packs_in(folder) if pack.engine == engine and pack.release > Release(after)]
    for pack in sorted(packs, key=lambda pack: pack.release.key):
        yield str(pack.release), set(pack.tables.architectures)


def first_releases(history: Iterable[tuple[str, set[str]]]) -> tuple[dict[str, str], str]:
    """Return the first release of each registered language model, and the last release that was read."""
    found: dict[str, str] = {}
    last = ""
    for tag, names in history:
        last = tag.removeprefix("v")
        for name in names:
            if NAME.fullmatch(name):
                found.setdefault(name, last)
    for written, registered in REGISTERED.items():
        if registered in found:
            found[written] = found[registered]
    return found, last


def table(engine: str, found: dict[str, str], last: str) -> str:
    """Write one engine's table."""
    lines = [f"[{engine}]", f'last_read = "{last}"']
    return "\n".join([*lines, *(f'{name} = "{release}"' for name, release in sorted(found.items()))]) + "\n"


def main() -> None:
    """Replace the tables of the two engines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vllm", type=Path, required=True)
    parser.add_argument("--sglang", type=Path, required=True)
    parser.add_argument("--packs", type=Path, required=True)
    named = parser.parse_args()
    text = WRITTEN.read_text(encoding="utf-8")
    for engine, tagged in (("vllm", list(vllm(named.vllm))), ("sglang", list(sglang(named.sglang)))):
        history = chain(tagged, learned_releases(named.packs, engine, tagged[-1][0]))
        text = re.sub(rf"^\[{engine}\]\n(?:.+\n)+", table(engine, *first_releases(history)), text, flags=re.MULTILINE)
    WRITTEN.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
