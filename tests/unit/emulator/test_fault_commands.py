"""A fault command selects endpoints by address, pool or model; unknown keys are rejected."""

import json

import pytest

from emulated import ask, emulated, serve
from ports import free_ports

POOLS = (("h100", "small"), ("h100", "small"), ("mi300x", "small"), ("big", "large"))
ALL = {0, 1, 2, 3}


def told(command: dict[str, object]) -> tuple[int, str, set[int]]:
    """What four endpoints answer to a command, and who of them refuses from then on."""
    *ports, control = free_ports(5)
    found: list[tuple[int, str, set[int]]] = []

    async def script() -> None:
        got = await ask(control, "/", {**command, "fault": "refuse"})
        shown = json.loads((await ask(control, "/")).body)
        ill = {number for number, one in enumerate(shown) if one["fault"] == "refuse"}
        found.append((got.status, got.body.decode(), ill))

    replicas = [emulated(port, pool=pool, model=model) for port, (pool, model) in zip(ports, POOLS, strict=True)]
    command = {name: value.format(*ports) if isinstance(value, str) else value for name, value in command.items()}
    serve(replicas, control, script)
    return found[0]


@pytest.mark.parametrize(
    ("command", "ill"),
    [
        ({}, ALL),
        ({"endpoint": "all"}, ALL),
        ({"endpoint": "127.0.0.1:{1}"}, {1}),
        ({"pool": "h100"}, {0, 1}),
        ({"model": "large"}, {3}),
        ({"model": "small", "pool": "mi300x"}, {2}),
        ({"model": "small", "endpoint": "all"}, {0, 1, 2}),
    ],
)
def test_a_fault_applies_to_the_selected_endpoints(command: dict[str, object], ill: set[int]) -> None:
    status, _, found = told(command)
    assert (status, found) == (200, ill)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ({"pools": "h100"}, "'pools' is not a key of a command; use endpoint, pool, model, fault, times, diff"),
        ({"target": "all", "pool": "h100"}, "'target' is not a key"),
        ({"pool": "h200"}, "no pool has the name 'h200'; use one of h100, mi300x, big"),
        ({"model": "h100"}, "'h100' is the name of a pool, not of a"),
        ({"endpoint": "h100"}, "'h100' is the name of a pool, not of a"),
        ({"endpoint": "nobody"}, "no endpoint has the name 'nobody'; use one of 127.0.0.1:"),
        ({"pool": None}, "no pool has the name None"),
        ({"pool": "big", "model": "small"}, "no endpoint has pool 'big' and model 'small'"),
    ],
)
def test_an_invalid_command_changes_nothing(command: dict[str, object], said: str) -> None:
    status, body, ill = told(command)
    assert (status, ill) == (400, set())
    assert said in json.loads(body)["error"]["message"]
