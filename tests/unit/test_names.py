"""One word, one class: a name that means two things makes every sentence about it ambiguous."""

import ast
from collections import defaultdict
from pathlib import Path

import penstock

ROOT = Path(penstock.__file__).parent


def test_no_public_class_name_is_defined_twice() -> None:
    defined: dict[str, list[str]] = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                defined[node.name].append(str(path.relative_to(ROOT)))
    twice = {name: places for name, places in defined.items() if len(places) > 1}
    assert not twice
    assert len(defined) > 100
