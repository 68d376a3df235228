"""Many models on shared devices: few devices keep every SLO, and the bill adds up."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.api.plan_shared import PlanSharedAnswer
from penstock.catalog import load_accelerator
from penstock.cli.root import app
from penstock.errors import UsageError
from penstock.fleet import Deployment
from penstock.fleet.fleet_file import write_fleet
from penstock.fleet.serving_engines import serving_defaults
from penstock.performance.shipped.shipped_runs import model_of, shipped_efficiencies
from penstock.planning.shared_placement.model_loads import ModelLoad, SizedModel, size_model
from penstock.planning.shared_placement.shared_fleet import (
    NoSharedFleet,
    SharedFleet,
    assign,
    draw_requests,
    simulate_fleet,
    smallest_fleet,
)
from penstock.planning.spec.plan_types import Bucket, Share
from penstock.simulation.placement import place
from penstock.workload import parse_slo

DOZEN = Path(__file__).parents[3] / "examples/shared-devices/dozen.yaml"
NAMES = ("llama-3.1-8b", "qwen3-8b", "mistral-7b", "qwen3-4b", "llama-3.2-3b", "gpt-oss-20b")


def sized(names: tuple[str, ...], accelerator_id: str, rate_per_s: float) -> list[SizedModel]:
    accelerator = load_accelerator(accelerator_id)
    found = []
    for name in names:
        load = ModelLoad(
            name=name,
            model=model_of(name),
            slo=parse_slo("ttft=5s,tpot=60ms,attain=95%"),
            requests_per_s=rate_per_s,
            shares=(Share(bucket=Bucket(input_tokens=512, output_tokens=128), fraction=1.0),),
        )
        engine = serving_defaults("vllm", accelerator, version=None, tp=1, pp=1)
        one = size_model(
            load,
            Deployment(model=load.model, accelerator=accelerator, engine=engine),
            lambda deployment, lengths: place(deployment, "vllm", shipped_efficiencies(), typical_lengths=lengths),
            host=True,
        )
        assert one is not None
        found.append(one)
    return found


def test_a_dozen_small_models_take_two_devices_and_a_spare() -> None:
    answer = penstock.plan_shared(DOZEN)
    assert answer.good
    for choice in answer.result.choices:
        assert len(choice.bills) == choice.dedicated_devices == 12
        assert all(bill.attained_fraction is not None and bill.attained_fraction >= 0.95 for bill in choice.bills)
        assert sum(bill.usd for bill in choice.bills) == pytest.approx(choice.usd)
        assert choice.rented_devices >= choice.devices + choice.spare_devices
    devices = {choice.accelerator: choice.devices for choice in answer.result.choices}
    assert max(devices[name] for name in ("mi300x", "mi355x", "b200_sxm")) <= 2
    assert answer.result.choices[0].devices + answer.result.choices[0].spare_devices <= 3


def test_more_load_never_takes_fewer_devices() -> None:
    counts = []
    for rate_per_s in (0.05, 0.5, 1.0):
        fleet = smallest_fleet(sized(NAMES, "mi300x", rate_per_s), hours=0.5, seed=1, eviction="least-harm")
        counts.append(len(fleet.devices) if isinstance(fleet, SharedFleet) else 99)
    assert counts == sorted(counts)


def test_models_with_work_share_a_device_whose_steps_serve_several_requests() -> None:
    """At 1 request/s each, one model alone takes most of a device's time if its requests run one after the other."""
    fleet = smallest_fleet(sized(NAMES[:3], "mi300x", 1.0), hours=0.5, seed=0, eviction="least-harm")
    assert isinstance(fleet, SharedFleet)
    assert len(fleet.devices) == 1
    assert fleet.worst_attained_fraction > 0.99


def test_a_model_that_needs_several_devices_is_named() -> None:
    models = [*sized(NAMES[:1], "h100", 0.1), *sized(NAMES[1:2], "h100", 500.0)]
    assert smallest_fleet(models, hours=0.01, seed=0, eviction="least-harm") == NoSharedFleet(overloaded=NAMES[1:2])


def test_one_model_pays_for_its_device() -> None:
    fleet = smallest_fleet(sized(NAMES[:1], "h100", 0.1), hours=0.5, seed=0, eviction="least-recently-used")
    assert isinstance(fleet, SharedFleet)
    assert fleet.cost_shares == (1.0,)
    assert len(fleet.devices) == 1


@settings(max_examples=15, deadline=None)
@given(count=st.integers(1, 6), rate_per_s=st.floats(0.001, 0.2))
def test_every_model_has_one_device_and_devices_hold_what_is_kept_awake(count: int, rate_per_s: float) -> None:
    models = sized(NAMES, "h100", rate_per_s)
    device_of = assign(models, count)
    if device_of is None:
        return
    asked = draw_requests(models, hours=0.2, seed=3)
    fleet = simulate_fleet(models, device_of, asked, eviction="least-harm")
    assert fleet.outcome.requests == len(asked)
    assert sum(fleet.cost_shares) == pytest.approx(1.0)
    assert all(device.peak_bytes <= device.capacity_bytes for device in fleet.outcome.devices)
    named = [one.pool for device in fleet.devices for one in device.models]
    assert len(named) == len(set(named)) == len(models)


def test_a_trace_is_refused_and_files_of_other_plans_too(tmp_path: Path) -> None:
    text = DOZEN.read_text().replace("lengths: [{input: 1k, output: 256}]", "trace: t.csv", 1)
    (tmp_path / "plan.yaml").write_text(text)
    with pytest.raises(UsageError, match="instead of a trace"):
        penstock.plan_shared(tmp_path / "plan.yaml")
    result = CliRunner().invoke(app, ["plan", str(DOZEN), "--share", "--html", "x.html"])
    assert result.exit_code == 2


PLAN = """
name: one
start: 2026-12-01
workloads:
  - name: chat
    model: llama-3.1-8b
    slo: "ttft=1s,tpot=60ms,attain=95%"
    requests_per_s: 0.05
    lengths: [{input: 1k, output: 64, share: 80%}, {input: 60k, output: 64, share: 20%}]
accelerators: [{id: h100, rent_usd_per_hour: 2}]
acquire: [rent]
"""


def shared(tmp_path: Path, text: str) -> PlanSharedAnswer:
    (tmp_path / "plan.yaml").write_text(text)
    return penstock.plan_shared(tmp_path / "plan.yaml")


def test_every_length_of_a_mixture_is_simulated(tmp_path: Path) -> None:
    """A prompt of 60k tokens takes longer than 1 s on an H100, so a fifth of the requests is late."""
    answer = shared(tmp_path, PLAN)
    assert not answer.good
    assert "chat" in answer.result.left_out[0]


def test_stated_rents_and_limits_apply_to_short_names(tmp_path: Path) -> None:
    easy = PLAN.replace("ttft=1s", "ttft=30s")
    (choice,) = shared(tmp_path, easy).result.choices
    assert choice.accelerator == "h100_sxm"
    assert choice.usd_per_device_hour == 2
    limited = shared(tmp_path, easy.replace("rent_usd_per_hour: 2}", "rent_usd_per_hour: 2, max_nodes: 0}"))
    assert "max_nodes" in limited.result.left_out[0]


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("acquire: [buy]", "add `rent`"),
        ("acquire: [rent]\nconstraints: {min_vendors: 2}", "has one vendor"),
        ("acquire: [rent]\nowned: [{id: h100, nodes: 1}]", "remove `owned`"),
        ("acquire: [rent]\nconstraints: {utilisation: 30%}", "remove `utilisation`"),
        ("acquire: [rent]\nconstraints: {confidence: 99%}", "remove `utilisation` and `confidence`"),
    ],
)
def test_rules_that_would_be_ignored_are_refused(tmp_path: Path, rule: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        shared(tmp_path, PLAN.replace("acquire: [rent]", rule))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("requests_per_s: {value: 0.05, low: 0.04, high: 80}", "without a range"),
        ("requests_per_s: 0.05\n    growth_per_year: 20%", "remove `growth_per_year`"),
    ],
)
def test_demand_that_would_be_ignored_is_refused(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        shared(tmp_path, PLAN.replace("requests_per_s: 0.05", line))


def test_a_model_is_one_workload(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'a b' and 'a-b' have one model"):
        shared(tmp_path, SHORT.replace("llama-3.2-3b", "llama-3.1-8b"))


def test_a_spare_is_an_instance_as_in_other_plans(tmp_path: Path) -> None:
    """The spare of a node that fails cannot be in that node."""
    by_eights = SHORT.replace("rent_usd_per_hour: 2}", "rent_usd_per_hour: 2, instances: [8]}")
    answer = shared(tmp_path, by_eights)
    (choice,) = answer.result.choices
    assert (choice.devices, choice.spare_devices, choice.rented_devices) == (1, 8, 16)
    (nodes,) = answer.result.fleets[choice.accelerator].nodes
    assert (nodes.nodes, nodes.spare_nodes, nodes.node_devices) == (2, 1, 8)


def test_another_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="run vLLM"):
        shared(tmp_path, PLAN.replace("requests_per_s", "engine: sglang\n    requests_per_s"))


SHORT = """
name: short answers
workloads:
  - name: a b
    model: llama-3.1-8b
    slo: "ttft=5s,tpot=60ms,attain=95%"
    requests_per_s: 0.5
    lengths: [{input: 512, output: 128, share: 50%}, {input: 4k, output: 16, share: 50%}]
  - name: a-b
    model: llama-3.2-3b
    slo: "ttft=2s,tpot=60ms,attain=95%"
    requests_per_s: 0.2
    lengths: [{input: 1k, output: 32}]
accelerators: [{id: mi300x, rent_usd_per_hour: 2}]
acquire: [rent]
"""


def test_the_written_fleet_serves_short_answers_as_the_plan_says(tmp_path: Path) -> None:
    """Before a router has seen answers it expects 256 tokens: the engines' context has room for them."""
    answer = shared(tmp_path, SHORT)
    (choice,) = answer.result.choices
    assert choice.worst_attained_fraction >= 0.95
    fleet = answer.result.fleets[choice.accelerator]
    assert [pool.name for pool in fleet.pools] == ["a-b", "a-b-2"]
    assert fleet.shared_devices[0].pools == ("a-b", "a-b-2")
    (tmp_path / "fleet.yaml").write_text(write_fleet(fleet))
    found = penstock.simulate_fleet(str(tmp_path / "fleet.yaml"), requests=500, seed=7)
    assert found.good
    assert found.runs[0].outcome.refused == 0
