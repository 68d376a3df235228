"""Reads a release of SGLang: the fields of its server arguments, parsers, environment variables and models."""

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Final

from penstock.preflight.packs.release_source import ReleaseSource, parse_python
from penstock.preflight.packs.release_tables import (
    ReleaseTables,
    added_arguments,
    dict_keys,
    named_lists,
    texts_of,
)

_ROOT: Final = "sglang/srt/"
_ARGUMENTS: Final = f"{_ROOT}server_args.py"
_FIELDS: Final = f"{_ROOT}arg_groups/fields/"
_KINDS: Final = {"bool": "switch", "int": "whole", "float": "number"}
_PARSERS: Final = (
    ("tool-call-parser", "ToolCallParserEnum", ("function_call/function_call_parser.py", "function_call_parser.py")),
    ("reasoning-parser", "DetectorMap", ("parser/reasoning_parser.py", "reasoning_parser.py")),
)
_MODEL_LINE: Final = re.compile(r"^(?:EntryClass.*|    [A-Z]\w+,|class \w+.*)$", re.MULTILINE)
_ARCHITECTURE: Final = re.compile(r"\b([A-Z]\w+(?:ForCausalLM|ForConditionalGeneration))\b")


def read_sglang(source: ReleaseSource) -> ReleaseTables:
    """Read the names that a release of SGLang accepts."""
    paths = [_ARGUMENTS, *sorted(path for path in source.paths if path.startswith(_FIELDS))]
    trees = [parse_python(source, path) for path in paths]
    lists: dict[str, frozenset[str]] = named_lists(parse_python(source, f"{_ROOT}arg_groups/choices.py"))
    for tree in trees:
        lists |= {name: texts for name, texts in named_lists(tree).items() if texts}
    flags, kinds, choices = set[str](), dict[str, str](), dict[str, frozenset[str]]()
    for names, kind, values in (found for tree in trees for found in _declarations(tree, lists)):
        flags.update(names)
        kinds.update({names[0]: kind} if kind else {})
        choices.update({names[0]: values} if values else {})
    return ReleaseTables(
        flags=frozenset(flags),
        kinds=kinds,
        choices={**choices, **_parsers(source)},
        variables=_variables(source),
        architectures=_architectures(source),
    )


def _declarations(
    tree: ast.Module, lists: Mapping[str, frozenset[str]]
) -> Iterator[tuple[list[str], str | None, frozenset[str]]]:
    """Yield the names, the kind and the values of every flag: fields `name: A[type, Arg(...)]` and `add_argument`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    yield from _field(field.target.id, field.annotation, lists)
    for names, keywords in added_arguments(tree):
        if names:
            yield names + _negations(names, keywords), None, texts_of(keywords.get("choices"), lists)


def _field(
    name: str, annotation: ast.expr, lists: Mapping[str, frozenset[str]]
) -> Iterator[tuple[list[str], str | None, frozenset[str]]]:
    annotated = isinstance(annotation, ast.Subscript) and isinstance(annotation.value, ast.Name)
    if not annotated or not isinstance(annotation, ast.Subscript) or annotation.value.id not in {"A", "Annotated"}:  # type: ignore[attr-defined] # a Name, checked before
        return
    parts = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else []
    call = next((part for part in parts[1:] if isinstance(part, ast.Call) and _name(part.func) == "Arg"), None)
    derived = any(isinstance(part, ast.Call) and _name(part.func) == "Derived" for part in parts[1:])
    keywords = {} if call is None else {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    hidden = keywords.get("no_cli")
    # SGLang skips a field that has neither an `Arg` nor a help text.
    described = call is not None or any(not isinstance(part, ast.Call) for part in parts[1:])
    if name.startswith("_") or derived or not described or (isinstance(hidden, ast.Constant) and hidden.value is True):
        return
    own = keywords.get("cli_name")
    flag = own.value if isinstance(own, ast.Constant) and isinstance(own.value, str) else name.replace("_", "-")
    aliases = sorted(text[2:] for text in texts_of(keywords.get("aliases"), {}) if text.startswith("--"))
    names = [flag.removeprefix("--"), *aliases]
    plain = not keywords.keys() & {"type_parser", "action", "nargs"}
    kind = _KINDS.get(_name(parts[0]) or "") if plain else None
    yield names + _negations(names, keywords), kind, texts_of(keywords.get("choices"), lists)


def _negations(names: list[str], keywords: Mapping[str, ast.expr]) -> list[str]:
    """Return the negations of a switch that has them."""
    return [f"no-{name}" for name in names] if _name(keywords.get("action")) == "BooleanOptionalAction" else []


def _name(node: ast.AST | None) -> str | None:
    """Return the last name of a dotted name, and the inner name of `Optional[name]`."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=ast.Name(id="Optional"), slice=ast.Name(id=name)) if name != "bool":
            return name
    return None


def _parsers(source: ReleaseSource) -> dict[str, frozenset[str]]:
    found, automatic = {}, 'choices=["auto"] + ' in source.read(_ARGUMENTS)
    for flag, table, paths in _PARSERS:
        trees = (parse_python(source, _ROOT + path) for path in paths)
        names = next((keys for tree in trees if (keys := dict_keys(tree, table))), frozenset())
        if names:
            found[flag] = names | ({"auto"} if automatic else set())
    return found


def _variables(source: ReleaseSource) -> frozenset[str]:
    text = source.read(f"{_ROOT}environ.py")
    return frozenset(re.findall(r"^    (SGLANG_[A-Z0-9_]+)\s*(?::[^=\n]*)?=", text, re.MULTILINE))


def _architectures(source: ReleaseSource) -> frozenset[str]:
    """Return the classes of the model files, as the registry finds them."""
    found = set[str]()
    for path in source.paths:
        if path.startswith(f"{_ROOT}models/"):
            found.update(
                name for line in _MODEL_LINE.findall(source.read(path)) for name in _ARCHITECTURE.findall(line)
            )
    return frozenset(found)
