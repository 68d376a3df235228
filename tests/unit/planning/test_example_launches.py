"""Every kind of replica that a shipped plan chooses has an engine whose launch preflight passes.

The kinds come from the table of expected answers, so no plan is solved here. `test_examples` checks the engines chosen.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from expected_plans import TABLE
from penstock.api.arguments.choices import ranks_choice
from penstock.catalog import load_accelerator
from penstock.checkpoint import open_checkpoint
from penstock.fleet.disaggregated_replica import Disaggregated
from penstock.performance.shipped.shipped_drafts import own_drafts
from penstock.performance.shipped.shipped_runs import model_of, shipped_efficiencies
from penstock.planning.candidates.deployment_options import WorkloadOnAccelerator, options_of, weight_formats
from penstock.planning.candidates.launch_obstacles import LaunchCheck
from penstock.planning.candidates.replica_capacity import Option
from penstock.planning.spec.plan_file import parse_plan
from penstock.planning.spec.plan_types import AcceleratorPlan, Bucket, Share, WorkloadPlan
from penstock.preflight import Subject, load_knowledge
from penstock.preflight.facts.subject import subject_of
from small_plans import TODAY

FOLDER: Final = Path(__file__).resolve().parents[3] / "examples" / "plans"
EXPECTED: Final = json.loads(TABLE.read_text(encoding="utf-8"))
UNIT: Final = re.compile(r"(\d+) prefill (.+) to (\d+) decode (.+) (\S+)")
"""Way of a disaggregated unit, and its weights."""

LENGTHS: Final = (Share(bucket=Bucket(input_tokens=1024, output_tokens=256), fraction=1.0),)


@cache
def subject(name: str) -> Subject:
    return subject_of(open_checkpoint(name), name)


def ways(workload: WorkloadPlan, accelerator: str, ident: str) -> Iterator[Option]:
    """Yield the options of a kind of replica, one for each engine measured on the accelerator."""
    spec, placing = (
        model_of(workload.model),
        WorkloadOnAccelerator(
            workload=workload,
            accelerator=load_accelerator(accelerator),
            planned=AcceleratorPlan(id=accelerator),
            drafts_of=own_drafts,
        ),
    )
    measured = shipped_efficiencies().engines(accelerator, spec) or shipped_efficiencies().engines_of("nvidia")
    engines = [name for name in measured if not workload.engines or name in workload.engines]
    unit = UNIT.search(ident)
    if unit is None:
        yield from (option for option in options_of(spec, placing, engines)[0] if option.id == ident)
        return
    stored = dict(weight_formats(workload, spec))[unit[5]]
    for engine in engines:
        prefill, decode = (placing.deployment(stored, ranks_choice(unit[at]), engine, drafts=False) for at in (2, 4))
        both = Disaggregated(
            prefill=prefill, prefill_replicas=int(unit[1]), decode=decode, decode_replicas=int(unit[3])
        )
        yield Option(id=ident, weights=unit[5], deployment=decode, measured_engine=engine, disaggregated=both)


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.yaml")))
def test_every_replica_of_a_shipped_plan_can_be_launched(name: str) -> None:
    path = FOLDER / f"{name}.yaml"
    plan = parse_plan(path.read_text(encoding="utf-8"), path.name, today=TODAY)
    # A trace, which is not read here, has its own lengths; a launch does not depend on them.
    workloads = {entry.name: replace(entry, shares=entry.shares or LENGTHS) for entry in plan.workloads}
    check = LaunchCheck(subject, load_knowledge())
    kinds = {key.split(" ", 1)[1] for key in EXPECTED[name]["replicas"]}
    assert kinds
    for ident in kinds:
        workload = next(entry for entry in workloads.values() if ident.startswith(f"{entry.name} "))
        accelerator = ident.removeprefix(f"{workload.name} ").split(" ", 1)[0]
        obstacles = {
            option.measured_engine: check.obstacle(option, workload.model)
            for option in ways(workload, accelerator, ident)
        }
        assert None in obstacles.values(), f"{ident}: {obstacles}"
