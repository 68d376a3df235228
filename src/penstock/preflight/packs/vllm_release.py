"""Reads a release of vLLM: its parser, registries, environment variables and defaults."""

import ast
import re
from typing import Final

from penstock.preflight.packs.release_source import ReleaseSource, parse_python
from penstock.preflight.packs.release_tables import (
    ReleaseTables,
    added_arguments,
    assignment,
    dict_keys,
    named_lists,
    number_default,
    texts_of,
)

_ARGUMENTS: Final = "vllm/engine/arg_utils.py"
_LITERALS: Final = {
    "tokenizer-mode": ("TokenizerMode", ("vllm/config/model.py", "vllm/config/__init__.py", "vllm/config.py")),
    "quantization": ("QuantizationMethods", ("vllm/model_executor/layers/quantization/__init__.py",)),
    "kv-cache-dtype": ("CacheDType", ("vllm/config/cache.py", "vllm/config/__init__.py", "vllm/config.py")),
    "moe-backend": ("MoEBackend", ("vllm/config/kernel.py",)),
    "speculative-config.method": ("SpeculativeMethod", ("vllm/config/speculative.py",)),
}
_BACKENDS: Final = ("vllm/v1/attention/backends/registry.py", "vllm/attention/backends/registry.py")
_DEFAULTS: Final = {
    "gpu_memory_utilization": "vllm/config/cache.py",
    "DEFAULT_MAX_NUM_BATCHED_TOKENS": "vllm/config/scheduler.py",
    "DEFAULT_MAX_NUM_SEQS": "vllm/config/scheduler.py",
}
DATACLASSES: Final = {
    "speculative-config": ("vllm/config/speculative.py", "SpeculativeConfig"),
    "compilation-config": ("vllm/config/compilation.py", "CompilationConfig"),
}
"""Files and names of the dataclasses behind flags that take JSON."""


def read_vllm(source: ReleaseSource) -> ReleaseTables:
    """Read the names that a release of vLLM accepts."""
    trees = [parse_python(source, path) for path in (_ARGUMENTS, *_front_ends(source))]
    utilities = source.read("vllm/utils/argparse_utils.py")
    inverse = "EnableDisableAction" in utilities
    switches = "BooleanOptionalAction" in source.read(_ARGUMENTS) + utilities
    negations = ({"no-"} if switches or inverse else set()) | ({"inverse"} if inverse else set())
    return ReleaseTables(
        flags=frozenset(name for tree in trees for name in _flags(tree)),
        negations=frozenset(negations),
        variables=_variables(source),
        choices={flag: values for flag, values in _choices(source).items() if values},
        architectures=_architectures(source),
        defaults={
            name: value
            for name, path in _DEFAULTS.items()
            if (value := number_default(parse_python(source, path), name)) is not None
        },
    )


def _front_ends(source: ReleaseSource) -> list[str]:
    return sorted(path for path in source.paths if path.startswith("vllm/") and path.endswith("/cli_args.py"))


def _flags(tree: ast.Module) -> set[str]:
    """Return the flags given to `add_argument`, and the fields of the front end's dataclasses."""
    found = {name for names, _ in added_arguments(tree) for name in names}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name.endswith("FrontendArgs"):
            fields = [field.target for field in node.body if isinstance(field, ast.AnnAssign)]
            found |= {field.id.replace("_", "-") for field in fields if isinstance(field, ast.Name)}
    return found


def _variables(source: ReleaseSource) -> frozenset[str]:
    return frozenset(re.findall(r'^\s+"(VLLM_[A-Z0-9_]+)":', source.read("vllm/envs.py"), re.MULTILINE))


def _architectures(source: ReleaseSource) -> frozenset[str]:
    text = source.read("vllm/model_executor/models/registry.py")
    return frozenset(re.findall(r'^\s*"([A-Z]\w+)":\s*\(?', text, re.MULTILINE))


def _choices(source: ReleaseSource) -> dict[str, frozenset[str]]:
    found = {"attention-backend": _backends(source)}
    for flag, (name, paths) in _LITERALS.items():
        trees = (parse_python(source, path) for path in paths)
        found[flag] = next((values for tree in trees if (values := literal_texts(tree, name))), frozenset())
    found["tokenizer-mode"] |= dict_keys(parse_python(source, "vllm/tokenizers/registry.py"), "_VLLM_TOKENIZERS")
    for flag, folder in (("tool-call-parser", "vllm/tool_parsers/"), ("reasoning-parser", "vllm/reasoning/")):
        found[flag] = _parser_names(source.read(f"{folder}__init__.py"))
    for flag, (path, name) in DATACLASSES.items():
        if keys := constructor_fields(parse_python(source, path), name):
            found[f"{flag}.keys"] = keys
    return found


def constructor_fields(tree: ast.Module, name: str) -> frozenset[str]:
    """Return the fields of a dataclass that its constructor takes."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            lines = [
                line for line in node.body if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
            ]
            return frozenset(line.target.id for line in lines if _is_given(line) and isinstance(line.target, ast.Name))
    return frozenset()


def _is_given(line: ast.AnnAssign) -> bool:
    hidden = isinstance(line.target, ast.Name) and line.target.id.startswith("_")
    default = "" if line.value is None else ast.unparse(line.value)
    return not hidden and "ClassVar" not in ast.unparse(line.annotation) and "init=False" not in default


def literal_texts(tree: ast.Module, name: str) -> frozenset[str]:
    """Return the texts of `Name = Literal["a", "b"]`, and of the literals that it names."""
    for node in tree.body:
        named = assignment(node)
        if named is not None and named[0] == name and isinstance(named[1], ast.Subscript):
            return texts_of(named[1].slice, named_lists(tree))
    return frozenset()


def _parser_names(text: str) -> frozenset[str]:
    """Return the names of lazily imported parsers, or of parsers that a decorator registers."""
    found = set(re.findall(r'^    "([a-z0-9_\-]+)": \(', text, re.MULTILINE))
    for names in re.findall(r"register_module\(\s*(?:name\s*=\s*)?(\[[^\]]*\]|\"[^\"]+\")", text):
        found.update(re.findall(r'"([^"]+)"', names))
    return frozenset(found)


def _backends(source: ReleaseSource) -> frozenset[str]:
    """Return the members of the enum of attention backends."""
    for path in _BACKENDS:
        for node in parse_python(source, path).body:
            if isinstance(node, ast.ClassDef) and node.name in {"AttentionBackendEnum", "_Backend"}:
                names = [named[0] for line in node.body if (named := assignment(line)) is not None]
                return frozenset(name for name in names if name.isupper())
    return frozenset()
