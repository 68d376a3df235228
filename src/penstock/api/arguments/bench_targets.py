"""Reads the targets and the file of a bench."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import yaml

from penstock.api.arguments.workload_argument import trace_choice
from penstock.api.options.bench_options import BenchOptions
from penstock.errors import UsageError
from penstock.planning.acceptance_file import read_acceptance
from penstock.planning.spec.plan_file import parse_plan
from penstock.planning.spec.plan_types import WorkloadPlan
from penstock.reading.text import read_text
from penstock.target_runs.bench_target import BenchLoad, BenchTarget, acceptance_target, mixed_lengths
from penstock.workload import AsRecorded, Workload

_REMEDY: Final = "`penstock plan plan.yaml --rfp DIRECTORY` writes an acceptance benchmark, `plan --init` a plan file"
_REQUESTS: Final = 300


def bench_targets(options: BenchOptions) -> list[BenchTarget]:
    """Return the targets with their requests, loads and prices."""
    path = Path(options.file)
    text = read_text(path, _REMEDY)
    addresses = _pairs("--target", options.target, "amd=http://10.0.0.1:8000")
    if not addresses:
        raise UsageError("no server is named; add `--target amd=http://10.0.0.1:8000`")
    if _is_acceptance(text):
        if (options.rate, options.requests, options.workload) != (None, None, None):
            raise UsageError("an acceptance benchmark states its loads; drop --rate, --requests and --workload")
        acceptance = read_acceptance(text, path.name)
        found = [acceptance_target(name, url, acceptance) for name, url in addresses.items()]
    else:
        plan = parse_plan(text, path.name, today=datetime.now(UTC).date())
        found = _of_plan(options, _chosen(plan.workloads, options.workload), addresses, path.parent)
    prices = _pairs("--usd-per-hour", options.usd_per_hour, "amd=16.50")
    unknown = next((name for name in prices if name not in addresses), None)
    if unknown is not None:
        raise UsageError(f"--usd-per-hour {unknown}: no target has this name; the targets are {', '.join(addresses)}")
    return [
        replace(one, usd_per_hour=_dollars(prices[one.name]), price_source="stated") if one.name in prices else one
        for one in found
    ]


def _is_acceptance(text: str) -> bool:
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError):
        return False
    return isinstance(document, dict) and "cases" in document


def _chosen(workloads: Sequence[WorkloadPlan], name: str | None) -> WorkloadPlan:
    names = [one.name for one in workloads]
    if name is None and len(workloads) == 1:
        return workloads[0]
    if name not in names:
        raise UsageError(f"--workload: name one workload of the plan: {', '.join(names)}")
    return workloads[names.index(name)]


def _of_plan(options: BenchOptions, chosen: WorkloadPlan, addresses: dict[str, str], folder: Path) -> list[BenchTarget]:
    if options.rate is None:
        raise UsageError(
            "a plan file states the load of a whole fleet; add --rate with the requests per second of one target"
        )
    load = BenchLoad(
        name=f"{options.rate:g}-per-s",
        requests_per_s=options.rate,
        requests=options.requests or _REQUESTS,
        at_least_fraction=chosen.slo.attainment_fraction,
    )
    workload = _requests_of(options, chosen, folder)
    return [
        BenchTarget(name=name, url=url, model=chosen.model, workload=workload, slo=chosen.slo, loads=(load,))
        for name, url in addresses.items()
    ]


def _requests_of(options: BenchOptions, chosen: WorkloadPlan, folder: Path) -> Workload:
    if chosen.trace is None:
        shares = [(one.bucket.input_tokens, one.bucket.output_tokens, one.fraction) for one in chosen.shares]
        return mixed_lengths(chosen.name, shares)
    trace = trace_choice(folder / chosen.trace, dict(chosen.columns) or None, options.watch)
    return Workload(name=chosen.name, arrivals=AsRecorded(), lengths=trace)


def _pairs(flag: str, given: Sequence[str], example: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        name, _, value = (piece.strip() for piece in text.partition("="))
        if not name or not value or not name.replace("-", "").replace("_", "").replace(".", "").isalnum():
            raise UsageError(f"{flag}: '{text[:120]}' is not NAME=VALUE; write `{flag} {example}`, for example")
        if name in found:
            raise UsageError(f"{flag}: '{name}' is named twice; give each target its own name")
        found[name] = value
    return found


def _dollars(text: str) -> float:
    try:
        value = float(text.removeprefix("$"))
    except ValueError:
        value = -1.0
    if not 0 < value < 1e9:
        raise UsageError(f"--usd-per-hour: '{text}' is not a price above 0 in dollars; write `amd=16.50`, for example")
    return value
