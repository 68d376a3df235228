"""What kind of value does a flag take? Writes preflight/data/kinds.toml from the engines' own parsers.

Run with a Python that has vLLM installed, and a copy of SGLang's `server_args.py`:
`python tools/build_kinds.py --sglang server_args.py`.
"""

import argparse
import ast
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

WRITTEN = Path(__file__).resolve().parent.parent / "src/penstock/preflight/data/kinds.toml"
HEAD = """# What kind of value a flag takes. Read by tools/build_kinds.py: vLLM's parser of 0.32.0, asked with samples
# of every kind, and the fields of SGLang's ServerArgs at 0.5.18. A switch takes none, JSON may be
# any value and an object must be one; flags that take any text are left out.
"""
_SAMPLES = ("abc", "5", "1.5", "{}", "32k")
_KINDS: dict[tuple[bool, ...], str] = {
    (False, True, False, False, False): "whole",
    (False, True, True, False, False): "number",
    (False, True, True, True, False): "json",
    (False, False, False, True, False): "object",
}
_TYPES = {"bool": "switch", "int": "whole", "float": "number"}


def vllm_kinds(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """Ask every option of a parser what it takes."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list
        names = [name[2:] for name in action.option_strings if name.startswith("--") and not name.startswith("--no-")]
        if not names or names[0] == "help" or action.nargs == "+":
            continue
        if action.nargs == 0:
            yield names[0], "switch"
        elif callable(action.type) and not action.choices:
            kind = _KINDS.get(tuple(_takes(action.type, sample) for sample in _SAMPLES))
            if kind is not None:
                yield names[0], kind


def _takes(parse: Callable[[str], object], sample: str) -> bool:
    try:
        parse(sample)
    except Exception:  # noqa: BLE001 - whatever a parser raises means no
        return False
    return True


def sglang_kinds(text: str) -> Iterator[tuple[str, str]]:
    """Read the annotations of ServerArgs: `A[int, ...]`, `A[Optional[float], ...]`, `A[bool, ...]`."""
    classes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef) and node.name == "ServerArgs"]
    for field in classes[0].body:
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
            continue
        written = ast.unparse(field.annotation)
        plain = written.removeprefix("A[").removeprefix("Optional[").split(",")[0].rstrip("]")
        # What has a parser, an action or a count of values of its own is not what its type says.
        if plain in _TYPES and not any(word in written for word in ("no_cli=True", "type_parser", "action=", "nargs=")):
            if plain == "bool" and "Optional[bool]" in written:
                continue
            yield field.target.id.replace("_", "-"), _TYPES[plain]


def main() -> None:
    """Write the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--sglang", type=Path, required=True)
    given = options.parse_args()
    engine, words = (
        import_module(name) for name in ("vllm.entrypoints.launchers.cli_args", "vllm.utils.argparse_utils")
    )
    found = {
        "vllm": dict(vllm_kinds(engine.make_arg_parser(words.FlexibleArgumentParser()))),
        "sglang": dict(sglang_kinds(given.sglang.read_text(encoding="utf-8"))),
    }
    lines = [HEAD]
    for name, kinds in found.items():
        lines.append(f"[{name}]")
        lines += [f'{flag} = "{kind}"' for flag, kind in sorted(kinds.items())]
        lines.append("")
    WRITTEN.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
    sys.stdout.write(f"{sum(len(kinds) for kinds in found.values())} flags\n")


if __name__ == "__main__":
    main()
