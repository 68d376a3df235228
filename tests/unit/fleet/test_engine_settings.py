"""Settings of an engine in a fleet file are honoured or refused: none is read and forgotten."""

from collections.abc import Mapping
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import penstock
from penstock.api.arguments.fleet_argument import fleet_choice, placed_pool
from penstock.api.route import routed_fleet
from penstock.errors import UsageError
from penstock.fleet.deployment import Parallelism
from penstock.fleet.engine_settings import EngineSetting, check_setting
from penstock.fleet.fleet_file import FLEET_FILE, read_fleet
from penstock.fleet.pools import Pool

FLEET = Path(__file__).resolve().parents[3] / "examples" / "fleets" / "chat-70b-h100-mi300x.yaml"


def started(pool: Pool, settings: Mapping[str, EngineSetting]) -> Pool:
    return replace(pool, engine=replace(pool.engine, settings=settings))


@pytest.mark.parametrize("name", ["max_model_len", "context_length"])
def test_a_pool_holds_no_more_than_its_engine_is_started_for(name: str) -> None:
    """Attack: prompts of 16,000 tokens were sent to a pool whose engine is started for 8,192."""
    described = fleet_choice(FLEET)
    short, other = described.pools[0], described.pools[1]
    asked = replace(described, pools=(started(short, {name: 8192}), other))
    assert placed_pool(asked, asked.pools[0]).context_tokens == 8192
    for run in penstock.simulate_fleet(
        asked, policy="penstock,round-robin", input_tokens=16_000, output_tokens=64, rate=1.0, requests=40
    ).runs:
        (row,) = run.destinations
        assert row.shares == (0.0, 1.0)
    addressed = tuple(replace(one, endpoints=(f"127.0.0.1:{9000 + at}",)) for at, one in enumerate(asked.pools))
    assert routed_fleet(replace(asked, pools=addressed)).endpoints["max_context_tokens"][0] == 8192


def test_what_no_pool_can_hold_is_said_with_the_reason() -> None:
    described = fleet_choice(FLEET)
    asked = replace(described, pools=tuple(started(one, {"max_model_len": 4096}) for one in described.pools))
    answer = penstock.simulate_fleet(asked, input_tokens=6_000, output_tokens=64, rate=1.0, requests=10)
    console = Console(file=StringIO(), width=200, color_system=None)
    console.print(answer.render(200))
    said = " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]
    assert "10 requests fit no pool and missed the SLO (10 exceed the engines' context" in said
    assert "may have at most 4,096 tokens in total" in said
    assert not answer.good


@pytest.mark.parametrize(
    ("name", "value", "fix"),
    [
        ("max_model_len", -8192, "write a whole number of 1 or more"),
        ("max_model_len", 1.5, "write a whole number of 1 or more"),
        ("max_num_seqs", 0, "write a whole number of 1 or more"),
        ("max_num_seqs", True, "write a whole number of 1 or more"),
        ("gpu_memory_utilization", 92, "write a share above 0 and up to 1"),
        ("gpu_memory_utilization", "most", "write a share above 0 and up to 1"),
        ("enable_prefix_caching", "maybe", "write true or false"),
        ("max-model-len", 8192, "did you mean `max_model_len`"),
        ("colour", "red", "known: max_num_batched_tokens"),
    ],
)
def test_nonsense_is_refused_with_the_fix(name: str, value: EngineSetting, fix: str) -> None:
    with pytest.raises(UsageError, match=fix):
        check_setting(name, value)
    text = FLEET.read_text().replace("settings: {}", f"settings: {{{name}: {str(value).lower()}}}", 1)
    with pytest.raises(UsageError, match=fix) as caught:
        read_fleet(text, "fleet.yaml")
    assert str(caught.value).startswith("fleet.yaml:")
    assert len(str(caught.value).splitlines()) == 1


def test_editors_offer_every_setting_that_is_read() -> None:
    good: dict[str, EngineSetting] = {"integer": 16, "number": 0.9, "boolean": False}
    offered = FLEET_FILE.schema()["$defs"]["PoolEngine"]["properties"]["settings"]["properties"]
    for name, schema in offered.items():
        check_setting(name, good[schema["type"]])


def test_a_prefix_cache_can_be_switched_off_by_either_engines_name() -> None:
    described = fleet_choice(FLEET)
    pool = described.pools[0]
    for settings in ({"enable_prefix_caching": False}, {"disable_radix_cache": True}):
        assert not placed_pool(described, started(pool, settings)).prefix_caching
    assert placed_pool(described, pool).prefix_caching
    assert np.isfinite(placed_pool(described, pool).context_tokens or np.inf)


def test_silicon_has_its_own_vendor() -> None:
    """Attack: `vendor: nvidia` on an MI300X made every fallback of another vendor one of the same."""
    text = FLEET.read_text()
    with pytest.raises(UsageError, match="write `vendor: amd`"):
        penstock.simulate_fleet(read_fleet(text.replace("vendor: amd", "vendor: nvidia"), "fleet.yaml"), requests=10)
    own = read_fleet(text.replace("vendor: amd", "vendor: rack-7"), "fleet.yaml")
    assert penstock.simulate_fleet(own, requests=10).pools[1].vendor == "rack-7"


def test_a_split_that_cannot_be_says_why_and_asks_with_that_split() -> None:
    described = fleet_choice(FLEET)
    odd = replace(described, pools=(replace(described.pools[0], split=Parallelism(tp=3)), described.pools[1]))
    with pytest.raises(UsageError, match=r"do not divide over tp 3.*`penstock fit .* --tp 3`"):
        penstock.simulate_fleet(odd, requests=10)
