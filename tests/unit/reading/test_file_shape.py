"""Hostile files end in one line, and quickly."""

import time

import pytest

from penstock.errors import UsageError
from penstock.fleet.fleet_file import read_fleet
from penstock.reading.yaml_tree import parse_yaml

BOMB = "a0: &a0 [1, 1]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 40))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: &a [*a]", "f.yaml:1: an alias refers to the value that contains it"),
        ("a: &a {b: *a}", "f.yaml:1: an alias refers to the value that contains it"),
        (BOMB, "aliases expand to more than 1,000,000 values"),
        ("version: 1\nname: x\nversion: 1", "f.yaml:3: version: is written twice; keep one"),
        ("[" * 5000, "f.yaml"),
        ("version: .nan", "'.nan' is not a number"),
        ("version: [1]", "f.yaml:1: version: this penstock reads version 1"),
        ("{version: 1, ? [a, b] : 1}", "`?` is not a key of the fleet"),
        (
            "version: 1\nname: x\ncolour:\nnodes: []\npools: []\nroutes: []",
            "f.yaml:3: `colour` is not a key of the fleet",
        ),
        ("version: 1\nname:\nnodes: []\npools: []\nroutes: []", "f.yaml:1: the fleet: has no `name`; add `name: ...`"),
        ("version: 1\npools: []", "f.yaml:1: the fleet: has no `name`, `nodes`, `routes`; add `name: ...`, `nodes"),
        ("version: 1\nname: ''\nnodes: []\npools: []\nroutes: []", "f.yaml:2: name: must be a single word or sentence"),
        ("version: 1\nname: x\nnodes: 7\npools: []\nroutes: []", "f.yaml:3: nodes: must be a list"),
        ("version: 1\nname: x\nnodes: [7]\npools: []\nroutes: []", "f.yaml:3: nodes 1: must have keys"),
        (
            "version: 1\nname: x\nnodes: []\npools: []\nroutes: []",
            "f.yaml:4: pools: a fleet must have at least one pool",
        ),
        ("- 1", "f.yaml:1: the fleet: must have keys"),
        ("7", "f.yaml:1: the fleet: must have keys"),
    ],
)
def test_a_hostile_file_is_refused_in_one_line(text: str, complaint: str) -> None:
    begun = time.process_time()
    with pytest.raises(UsageError) as refused:
        read_fleet(text, "f.yaml")
    assert complaint in str(refused.value)
    assert "\n" not in str(refused.value)
    assert time.process_time() - begun < 5


def test_scalars_keep_the_type_yaml_gives_them() -> None:
    tree = parse_yaml("{a: 1, b: '1', c: true, d: , e: 0.31}", "f.yaml", kind="file", written_by="an editor")
    assert isinstance(tree.value, dict)
    assert [value if value is None else value.typed_value() for value in tree.value.values()] == [
        1,
        "1",
        True,
        None,
        0.31,
    ]
