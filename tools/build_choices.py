"""Which values does a flag take in a release? Writes preflight/data/choices.toml from the engines' own registries.

Needs clones with their tags, and a folder of an installed vLLM for releases after the last tag:
`python tools/build_choices.py --vllm DIR --sglang DIR [--installed FOLDER --installed-release 0.32.0]`.
"""

import argparse
import ast
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from penstock.fleet.release import Release
from penstock.preflight.packs.vllm_release import DATACLASSES, constructor_fields, literal_texts

ROOT = Path(__file__).resolve().parent.parent
WRITTEN = ROOT / "src/penstock/preflight/data/choices.toml"
HEAD = """# Which values a flag takes in which release: first release, release in which it was gone.
# Read from the engines' registries in the releases listed here: tags (tools/build_choices.py), and wheels of vLLM after
# the last tag (`penstock preflight learn`). The first release of a table means "that or earlier". Whether a release
# between two of those listed has what only one of them has is not known.
"""
Choices = dict[str, set[str]]
Reader = Callable[[str], str]
"""Returns the text of a file of one release, empty where it has none."""
_VLLM_LITERALS = {
    "tokenizer-mode": ("TokenizerMode", ("vllm/config/model.py", "vllm/config/__init__.py", "vllm/config.py")),
    "quantization": ("QuantizationMethods", ("vllm/model_executor/layers/quantization/__init__.py",)),
    "kv-cache-dtype": ("CacheDType", ("vllm/config/cache.py", "vllm/config/__init__.py", "vllm/config.py")),
    "moe-backend": ("MoEBackend", ("vllm/config/kernel.py",)),
}
_SGLANG_FLAGS = (
    "attention-backend",
    "quantization",
    "kv-cache-dtype",
    "moe-runner-backend",
    "moe-a2a-backend",
    "dtype",
)


def git(clone: Path, *arguments: str) -> str:
    """Read from a clone."""
    command = ["git", "-C", str(clone), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout  # noqa: S603 - no shell


def releases(clone: Path, first: str) -> list[str]:
    """List release tags, candidates left out, oldest first."""
    tags = [tag for tag in git(clone, "tag").split() if re.fullmatch(r"v[\d.]+(\.?post\d+)?", tag)]
    return sorted((tag for tag in tags if Release(tag) >= Release(first)), key=lambda tag: Release(tag).key)


def literal(text: str, name: str) -> set[str]:
    """Read `Name = Literal["a", "b"]`, without what comments quote."""
    bare = re.sub(r"#.*", "", text)
    match = re.search(rf"^{name}\s*(?::[^=\n]*)?=\s*Literal\[(.*?)\]", bare, re.MULTILINE | re.DOTALL)
    return set(re.findall(r'"([^"]+)"', match[1])) if match else set()


def registered(texts: Iterator[str]) -> set[str]:
    """Read parsers: a table of lazy modules, or a decorator on each."""
    found: set[str] = set()
    for text in texts:
        found.update(re.findall(r'^    "([a-z0-9_\-]+)": \(', text, re.MULTILINE))
        for names in re.findall(r"register_module\(\s*(?:name\s*=\s*)?(\[[^\]]*\]|\"[^\"]+\")", text):
            found.update(re.findall(r'"([^"]+)"', names))
    return found


def backends(read: Reader) -> set[str]:
    """Read the members of the enum of attention backends."""
    for path in ("vllm/v1/attention/backends/registry.py", "vllm/attention/backends/registry.py"):
        if text := read(path):
            body = re.split(r"^class Mamba", text, flags=re.MULTILINE)[0]
            return set(re.findall(r"^    ([A-Z][A-Z0-9_]+) = ", body, re.MULTILINE))
    match = re.search(r"class _Backend\(.*?\n\n\n", read("vllm/platforms/interface.py"), re.DOTALL)
    return set(re.findall(r"^    ([A-Z][A-Z0-9_]+) = ", match[0], re.MULTILINE)) if match else set()


def vllm_choices(read: Reader, listed: list[str]) -> Choices:
    """Read one release of vLLM."""
    found: Choices = {"attention-backend": backends(read)}
    for flag, (name, paths) in _VLLM_LITERALS.items():
        found[flag] = next((values for path in paths if (values := literal(read(path), name))), set())
    if text := re.search(
        r"QUANTIZATION_METHODS[^=]*= \[(.*?)\]", read(_VLLM_LITERALS["quantization"][1][0]), re.DOTALL
    ):
        found["quantization"] = found["quantization"] or set(re.findall(r'"([^"]+)"', re.sub(r"#.*", "", text[1])))
    found["tokenizer-mode"] |= _keys(read("vllm/tokenizers/registry.py"), "_VLLM_TOKENIZERS")
    for flag, word in (("tool-call-parser", "tool_parsers/"), ("reasoning-parser", "reasoning")):
        found[flag] = registered(read(path) for path in listed if word in path)
    for flag, (path, name) in DATACLASSES.items():
        found[f"{flag}.keys"] = set(constructor_fields(ast.parse(read(path)), name))
    speculation = ast.parse(read(DATACLASSES["speculative-config"][0]))
    found["speculative-config.method"] = set(literal_texts(speculation, "SpeculativeMethod"))
    return found


def vllm(clone: Path) -> Iterator[tuple[str, Choices]]:
    """Yield each release of vLLM with what its flags take."""
    for tag in releases(clone, "0.8.0"):
        named = git(clone, "ls-tree", "-r", "--name-only", f"refs/tags/{tag}", "vllm").split()
        listed = [path for path in named if path.endswith(".py") and re.search(r"/(tool_parsers|reasoning\w*)/", path)]

        def read(path: str, tag: str = tag) -> str:
            return git(clone, "show", f"refs/tags/{tag}:{path}")

        yield tag.removeprefix("v"), vllm_choices(read, listed)


def installed(folder: Path) -> Choices:
    """Read a vLLM that is installed: `folder` holds the package."""
    listed = [f"vllm/{part}/__init__.py" for part in ("tool_parsers", "reasoning")]

    def read(path: str) -> str:
        file = folder / path.removeprefix("vllm/")
        return file.read_text(encoding="utf-8") if file.is_file() else ""

    return vllm_choices(read, listed)


def sglang(clone: Path) -> Iterator[tuple[str, Choices]]:
    """Yield each release of SGLang with what its flags take."""
    for tag in releases(clone, "0.4.0"):
        source = "python/sglang/srt"
        arguments = git(clone, "show", f"refs/tags/{tag}:{source}/server_args.py")
        found = _arguments(arguments)
        for flag, table, paths in (
            (
                "tool-call-parser",
                "ToolCallParserEnum",
                ("function_call/function_call_parser.py", "function_call_parser.py"),
            ),
            ("reasoning-parser", "DetectorMap", ("parser/reasoning_parser.py", "reasoning_parser.py")),
        ):
            texts = (git(clone, "show", f"refs/tags/{tag}:{source}/{path}") for path in paths)
            found[flag] = next((keys for text in texts if (keys := _keys(text, table))), set())
            if found[flag] and 'choices=["auto"] + ' in arguments:
                found[flag].add("auto")
        yield tag.removeprefix("v"), found


def _keys(text: str, table: str) -> set[str]:
    match = re.search(rf"{table}[^=]*= {{(.*?)}}", re.sub(r"#.*", "", text), re.DOTALL)
    return set(re.findall(r'"([^"]+)":', match[1])) if match else set()


def _arguments(text: str) -> Choices:
    """Read `choices=` of the flags we check, written out or named, of a call or of a field's annotation."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return {}
    lists: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            lists[node.targets[0].id] = _strings(node.value, lists)
    found: Choices = {}
    for names, call in _calls(tree):
        given = next((keyword.value for keyword in call.keywords if keyword.arg == "choices"), None)
        for flag in names & set(_SGLANG_FLAGS):
            if given is not None and (values := _strings(given, lists)):
                found[flag] = values
    return found


def _calls(tree: ast.AST) -> Iterator[tuple[set[str], ast.Call]]:
    """Yield what declares a flag: `add_argument("--flag", ...)`, or `flag: Annotated[..., Arg(...)]`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            texts = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
            yield {text.removeprefix("--") for text in texts}, node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            for inner in ast.walk(node.annotation):
                if isinstance(inner, ast.Call):
                    yield {node.target.id.replace("_", "-")}, inner


def _strings(node: ast.expr, lists: Mapping[str, set[str]]) -> set[str]:
    if isinstance(node, ast.Name):
        return set(lists.get(node.id, ()))
    items = node.elts if isinstance(node, (ast.List, ast.Tuple, ast.Set)) else []
    return {item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, str)}


def spans(history: list[tuple[str, Choices]]) -> dict[str, dict[str, list[str]]]:
    """Turn what each release takes into first and last; a flag a release does not list changes nothing."""
    found: dict[str, dict[str, list[str]]] = {}
    for release, choices in history:
        for flag, values in choices.items():
            table = found.setdefault(flag, {})
            for value in values:
                table[value] = table.get(value, [release])[:1]
            if values:
                for value, span in table.items():
                    if value not in values and len(span) == 1:
                        span.append(release)
    return found


def written(tables: Mapping[str, Mapping[str, Mapping[str, list[str]]]], read: Mapping[str, list[str]]) -> str:
    """Write the file."""
    lines = [HEAD, "[read]"]
    lines += [f"{engine} = {listed(names)}" for engine, names in read.items()]
    for engine, flags in tables.items():
        for flag in sorted(name for name, values in flags.items() if values):
            lines.append(f"\n[{engine}.{flag}]")
            for value, span in sorted(flags[flag].items()):
                releases_of = ", ".join(f'"{release}"' for release in span)
                lines.append(f'"{value}" = [{releases_of}]')
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"


def listed(releases: list[str]) -> str:
    """Write a list of releases, twelve a line."""
    names = [f'"{name}"' for name in releases]
    rows = [", ".join(names[at : at + 12]) for at in range(0, len(names), 12)]
    return "[\n    " + ",\n    ".join(rows) + ",\n]"


def main() -> None:
    """Read both engines and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vllm", type=Path, required=True)
    parser.add_argument("--sglang", type=Path, required=True)
    parser.add_argument("--installed", type=Path)
    parser.add_argument("--installed-release", default="")
    given = parser.parse_args()
    ours = list(vllm(given.vllm))
    if given.installed:
        ours.append((given.installed_release, installed(given.installed)))
    histories = {"vllm": ours, "sglang": list(sglang(given.sglang))}
    read = {engine: [release for release, _ in history] for engine, history in histories.items()}
    found = {engine: spans(history) for engine, history in histories.items()}
    WRITTEN.write_text(written(found, read), encoding="utf-8")


if __name__ == "__main__":
    main()
