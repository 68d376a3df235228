"""Describes what is measured: targets, the requests that they receive, and the loads that they must serve."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from penstock.catalog import load_accelerator
from penstock.catalog.device_prices import hourly_rent
from penstock.errors import UsageError
from penstock.planning.acceptance_tests import Acceptance, AcceptanceCase
from penstock.workload import Empirical, Poisson, Slo, Workload

_LENGTH_ROWS = 10_000
"""Rows over which shares of lengths are spread. Shares are exact to 0.01%."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchLoad:
    """One load: Poisson arrivals at a rate, and the share of requests that must meet the SLO."""

    name: str
    requests_per_s: float
    requests: int
    at_least_fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchTarget:
    """One server under test with its requests, loads and limits."""

    name: str
    url: str
    model: str
    """Name of the model in the file. The server may serve it by another name."""
    workload: Workload
    slo: Slo
    loads: tuple[BenchLoad, ...]
    usd_per_hour: float | None = None
    """Price of the nodes under test; None if it is not known."""
    price_source: str | None = None
    required: Mapping[str, str] = field(default_factory=dict)
    """Facts of the server's setup that the file requires, by the fact's name."""


def mixed_lengths(name: str, lengths: Sequence[tuple[int, int, float]]) -> Workload:
    """Return Poisson arrivals of requests with given input tokens, output tokens and shares."""
    rows = [max(1, round(share * _LENGTH_ROWS)) for _, _, share in lengths]
    return Workload(
        name=name,
        arrivals=Poisson(),
        lengths=Empirical(
            input_tokens=np.repeat(np.array([inputs for inputs, _, _ in lengths], np.int32), rows),
            output_tokens=np.repeat(np.array([outputs for _, outputs, _ in lengths], np.int32), rows),
        ),
    )


def acceptance_target(name: str, url: str, acceptance: Acceptance) -> BenchTarget:
    """Return the target of the case that a name means: by the case's name, its accelerator or its vendor."""
    case = _case_of(name, acceptance)
    rent = hourly_rent(case.accelerator)
    devices = case.nodes * load_accelerator(case.accelerator).node.devices
    drafts = case.drafted_tokens
    return BenchTarget(
        name=name,
        url=url,
        model=case.model,
        workload=mixed_lengths(
            case.name, [(one.input_tokens, one.output_tokens, one.share_fraction) for one in case.lengths]
        ),
        slo=case.slo,
        loads=tuple(
            BenchLoad(
                name=load.name,
                requests_per_s=load.requests_per_s,
                requests=load.requests,
                at_least_fraction=load.at_least_fraction,
            )
            for load in case.loads
        ),
        usd_per_hour=None if rent is None else rent.usd_per_device * devices,
        price_source=None if rent is None else f"catalog rent of {devices} {case.accelerator}",
        required={
            "weights": case.weights,
            "kv_dtype": case.kv,
            "engine": case.engine,
            "drafting": "on" if drafts else "off",
            **({"draft_tokens": str(drafts)} if drafts else {}),
        },
    )


def _case_of(name: str, acceptance: Acceptance) -> AcceptanceCase:
    for key in ("name", "accelerator", "vendor"):
        found = [case for case in acceptance.cases if getattr(case, key) == name]
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(case.name for case in found)
            raise UsageError(f"--target {name}: several cases have this {key}; name the target after one of {names}")
    if len(acceptance.cases) == 1:
        return acceptance.cases[0]
    names = ", ".join(case.name for case in acceptance.cases)
    raise UsageError(
        f"--target {name}: no case has this name, accelerator or vendor; name the target after one of {names}"
    )
