"""An option that the rest of a question leaves without effect is refused in one line that names the flag to drop."""

from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

import penstock
from penstock.cli.root import app
from penstock.errors import UsageError

R1 = "deepseek-r1"
PREDICT: Callable[..., Any] = penstock.predict
SIMULATE: Callable[..., Any] = penstock.simulate
Options = dict[str, Any]
CASES: list[tuple[Callable[..., Any], Options, str]] = [
    (PREDICT, {"prefill": 1, "roofline": True}, "drop --roofline"),
    (SIMULATE, {"prefill": 1, "mtp": True, "users": 8}, "drop --mtp"),
    (PREDICT, {"kv_gbps": 50.0}, "--kv-gbps would change nothing without --prefill"),
    (PREDICT, {"prefill_split": "tp4"}, "--prefill-split would change nothing without --prefill"),
    (PREDICT, {"replicas": 2}, "--replicas would change nothing without --prefill"),
    (SIMULATE, {"kv_gbps": 50.0, "users": 8}, "--kv-gbps would change nothing without --prefill"),
    (SIMULATE, {"prefill_split": "tp4", "users": 8}, "--prefill-split would change nothing without --prefill"),
    (PREDICT, {"accepted": 2.4}, "--accepted would change nothing without drafts"),
]


@pytest.mark.parametrize(("ask", "options", "said"), CASES)
def test_python_and_the_command_refuse_it_alike(ask: Callable[..., Any], options: Options, said: str) -> None:
    """Attack: `predict --prefill 1 --mtp` answered 67% too slow as if --mtp had not been typed."""
    with pytest.raises(UsageError) as raised:
        ask(R1, "gb200:8", ep=True, **options)
    (line,) = str(raised.value).splitlines()
    assert said in line
    result = CliRunner().invoke(app, [ask.__name__, R1, "--on", "gb200:8", "--ep", *_typed(options)])
    assert isinstance(result.exception, UsageError)
    assert str(result.exception) == line


def _typed(options: Options) -> list[str]:
    flags = [(f"--{name.replace('_', '-')}", value) for name, value in options.items()]
    return [word for flag, value in flags for word in ([flag] if value is True else [flag, str(value)])]


def test_simulated_replicas_need_no_prefill() -> None:
    answer = penstock.simulate("llama-3.1-8b", "h100", replicas=2, users=2, requests=4, input_tokens=64)
    assert answer.good
