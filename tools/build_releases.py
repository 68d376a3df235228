"""Which flags and values did a release add or remove? Continues preflight/data/flags.toml and choices.toml from wheels.

Needs the unpacked `vllm` package of each release, oldest first:
`python tools/build_releases.py 0.28.0=FOLDER 0.29.0=FOLDER`.
The tables keep what was read before the first of them and are read again from there on.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from build_choices import installed, listed

from penstock.fleet.release import Release

DATA = Path(__file__).resolve().parent.parent / "src/penstock/preflight/data"
Table = dict[str, list[str]]
"""Names with their first release, the release in which they were gone, and what replaced them."""


def flags(package: Path) -> set[str]:
    """Read the flags of `vllm serve`: names given to `add_argument`, and fields of the front end's dataclasses."""
    found: set[str] = set()
    for file in (package / "engine/arg_utils.py", *sorted(package.rglob("cli_args.py"))):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
                literal = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
                found |= {text[2:] for text in literal if isinstance(text, str) and text.startswith("--")}
            elif isinstance(node, ast.ClassDef) and node.name.endswith("FrontendArgs"):
                fields = [field.target for field in node.body if isinstance(field, ast.AnnAssign)]
                found |= {field.id for field in fields if isinstance(field, ast.Name)}
    return {name.replace("_", "-") for name in found}


def variables(package: Path) -> set[str]:
    """Read the keys of `environment_variables` in envs.py."""
    text = (package / "envs.py").read_text(encoding="utf-8")
    return set(re.findall(r'^\s+"(VLLM_[A-Z0-9_]+)":', text, re.MULTILINE))


def continued(table: Mapping[str, list[str]], history: list[tuple[str, set[str]]]) -> Table:
    """Drop what a table says from the first release of a history on, and read it there instead."""
    first = Release(history[0][0])
    before = {name: entry for name, entry in table.items() if Release(entry[0]) < first}
    kept = {name: entry[:1] if _gone(entry, first) else entry for name, entry in before.items()}
    found = {name: list(entry) for name, entry in kept.items()}
    for release, names in history:
        for name in names:
            # A name that came back counts as never gone: no launch of the releases between was read.
            found[name] = found.get(name, [release])[:1]
        for name, entry in found.items():
            if name not in names and len(entry) == 1:
                entry.append(release)
    for name, entry in found.items():
        if len(entry) > 1 and len(table.get(name, ())) > 2:  # since, gone, instead, advice
            found[name] = [*entry[:2], *table[name][2:]]
    return found


def _gone(entry: list[str], first: Release) -> bool:
    return len(entry) > 1 and Release(entry[1]) >= first


def rewritten(text: str, tables: Mapping[str, Table]) -> str:
    """Replace the entries of the tables named in the text of a TOML file; comments and other tables stay."""
    lines: list[str] = []
    inside = None
    for line in text.splitlines():
        if line.startswith("["):
            if inside in tables:
                lines.append("")
            inside = line.strip("[]")
            lines.append(line)
            if inside in tables:
                lines += list(_entries(tables[inside]))
        elif inside not in tables:
            lines.append(line)
    return "\n".join(lines).rstrip() + "\n"


def _entries(table: Table) -> Iterator[str]:
    for name, entry in sorted(table.items()):
        texts = ", ".join(f'"{text}"' for text in entry)
        yield f'"{name}" = [{texts}]'


def read_list(text: str, releases: list[str]) -> str:
    """Add releases to the list of those that were read."""
    match = re.search(r"^vllm = \[(.*?)\]", text, re.MULTILINE | re.DOTALL)
    if match is None:
        raise SystemExit("the table does not say which releases were read")
    read = re.findall(r'"([^"]+)"', match[1])
    first = Release(releases[0])
    kept = [name for name in read if Release(name) < first]
    return text.replace(match[0], f"vllm = {listed([*kept, *releases])}")


def main() -> None:
    """Read the wheels and continue both files."""
    given = [(release, Path(folder)) for release, _, folder in (word.partition("=") for word in sys.argv[1:])]
    if not given:
        raise SystemExit(__doc__)
    releases = [release for release, _ in given]
    for name, read in (("flags", _flag_tables), ("choices", _choice_tables)):
        file = DATA / f"{name}.toml"
        text = file.read_text(encoding="utf-8")
        known = tomllib.loads(text)["vllm"]
        file.write_text(read_list(rewritten(text, read(known, given)), releases), encoding="utf-8")


def _flag_tables(known: Mapping[str, Table], given: list[tuple[str, Path]]) -> dict[str, Table]:
    return {
        "vllm.flags": continued(known["flags"], [(release, flags(folder)) for release, folder in given]),
        "vllm.variables": continued(known["variables"], [(release, variables(folder)) for release, folder in given]),
    }


def _choice_tables(known: Mapping[str, Table], given: list[tuple[str, Path]]) -> dict[str, Table]:
    read = [(release, installed(folder)) for release, folder in given]
    return {
        f"vllm.{flag}": continued(table, [(release, choices[flag]) for release, choices in read if choices.get(flag)])
        for flag, table in known.items()
    }


if __name__ == "__main__":
    main()
