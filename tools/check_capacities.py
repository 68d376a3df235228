"""Compares the rates of `plan` with those of `simulate --capacity`, for the same deployments, at P10, P50 and P90."""

from dataclasses import dataclass
from datetime import date
from pathlib import Path

from penstock.api.plan import sources_of
from penstock.api.simulate import simulate
from penstock.performance.prediction.predict_deployment import Range
from penstock.planning.candidates_by_workload import search_candidates
from penstock.planning.spec.plan_file import parse_plan
from penstock.planning.spec.resolve_plan import resolve

MAX_DIFFERENCE = 0.03
PLAN = """
name: one deployment
start: 2026-12-01
workloads:
  - name: chat
    model: {model}
    weights: [{weights}]
    mtp: false
    slo: {slo}
    requests_per_s: {rate}
    lengths: [{{input: {inputs}, output: {outputs}, share: 100%}}]
accelerators:
  - {{id: {accelerator}, tp: [{tp}], rent_usd_per_hour: 3}}
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A deployment and its load."""

    model: str
    weights: str
    accelerator: str
    tp: int
    rate: float
    inputs: int
    outputs: int
    slo: str

    def __str__(self) -> str:
        return f"{self.model} {self.accelerator} tp{self.tp}, {self.inputs}/{self.outputs}, {self.slo}"


CASES = (
    Case("llama-3.1-8b", "fp8", "l40s", 1, 33.33, 800, 100, "ttft=150ms,tpot=15ms,attain=99%"),
    Case("llama-3.1-70b", "fp8", "h200", 2, 20, 2000, 512, "ttft=2s,tpot=16ms,attain=95%"),
    Case("llama-3.1-70b", "fp8", "mi300x", 1, 8, 1000, 1000, "ttft=2s,tpot=60ms,attain=95%"),
    Case("llama-3.1-70b", "fp8", "h200", 2, 20, 2000, 512, "ttft=2s,tpot=60ms,attain=95%"),
    Case("llama-3.1-70b", "fp8", "h200", 2, 20, 2000, 512, "ttft=2s,tpot=20ms,attain=95%"),
    Case("llama-3.1-70b", "fp8", "h100", 2, 10, 4000, 256, "ttft=1s,tpot=40ms,attain=95%"),
    Case("llama-3.1-405b", "fp8", "b200", 4, 4, 4000, 500, "ttft=5s,tpot=50ms,attain=95%"),
    Case("llama-3.1-70b", "fp8", "b200", 1, 0.6, 100_000, 400, "ttft=30s,tpot=100ms,attain=95%"),
    Case("gpt-oss-120b", "checkpoint", "h100", 1, 30, 1000, 1000, "ttft=1s,tpot=30ms,attain=95%"),
    Case("gpt-oss-120b", "checkpoint", "mi355x", 1, 30, 1000, 1000, "ttft=1s,tpot=20ms,attain=95%"),
    Case("llama-3.1-70b", "fp8", "mi325x", 1, 2, 3000, 500, "ttft=2s,tpot=45ms,attain=95%"),
    Case("deepseek-r1", "checkpoint", "h200", 8, 5, 2000, 1000, "ttft=3s,tpot=60ms,attain=95%"),
    Case("llama-3.1-8b", "fp8", "h100", 1, 100, 500, 200, "ttft=300ms,tpot=12ms,attain=99%"),
    Case("llama-3.1-8b", "checkpoint", "mi300x", 1, 2, 500, 200, "ttft=500ms,tpot=25ms,attain=95%"),
    Case("llama-3.1-70b", "fp8", "h100", 4, 6, 8000, 200, "ttft=1500ms,tpot=30ms,attain=90%"),
    Case("llama-3.1-70b", "fp8", "mi355x", 1, 30, 2000, 300, "ttft=800ms,tpot=30ms,attain=95%"),
    Case("llama-3.1-70b", "checkpoint", "b200", 2, 30, 2000, 300, "e2e=10s,attain=95%"),
    Case("gpt-oss-20b", "checkpoint", "h100", 1, 60, 1000, 300, "ttft=500ms,tpot=10ms,attain=95%"),
    Case("deepseek-r1", "checkpoint", "mi355x", 8, 5, 1000, 1000, "ttft=3s,tpot=40ms,attain=95%"),
    Case("llama-3.1-70b", "fp8", "b200", 2, 40, 1000, 1000, "tpot=15ms,attain=95%"),
)
"""Tight and loose SLOs. In the first case a deployment that is slower than predicted misses its SLO at any rate."""


def main() -> None:
    """Print both rates of each deployment; exit 1 if any two differ by more than 3%."""
    wrong = 0
    for case in CASES:
        planned, simulated = rates_of(case)
        off = difference(planned, simulated)
        wrong += off > MAX_DIFFERENCE
        rates = ", ".join(
            f"{name} {ours:.4g} and {theirs:.4g}"
            for name, ours, theirs in zip(("P50", "P10", "P90"), planned.ends, simulated.ends, strict=True)
        )
        print(f"{off:6.1%}  {case}: {rates}", flush=True)
    print(f"{wrong} of {len(CASES)} deployments differ by more than {MAX_DIFFERENCE:.0%}")
    raise SystemExit(1 if wrong else 0)


def difference(planned: Range, simulated: Range) -> float:
    """Return the largest relative difference of the three rates; 0 and 0 are equal."""
    pairs = zip(planned.ends, simulated.ends, strict=True)
    return max(abs(ours - theirs) / max(ours, theirs) if max(ours, theirs) else 0.0 for ours, theirs in pairs)


def rates_of(case: Case) -> tuple[Range, Range]:
    """Return the rate of the pool that `plan` simulates, and the rate of `simulate --capacity` for an equal pool."""
    fields = {name: getattr(case, name) for name in Case.__slots__}
    plan = parse_plan(PLAN.format(**fields), "plan.yaml", today=date(2026, 11, 15))
    sources = sources_of(plan, Path())
    resolved = resolve(plan, sources.accelerators, sources.prices_of, named=True, draw_of=sources.draw_of)
    (found,) = search_candidates(resolved, sources, lambda *_: None).candidates
    (capacity,) = found.capacities
    replicas = capacity.simulated_replicas or 1
    answer = simulate(
        case.model,
        f"{case.accelerator}:{case.tp}",
        precision=None if case.weights == "checkpoint" else case.weights,
        engine=found.measured_engine,
        replicas=replicas,
        input_tokens=case.inputs,
        output_tokens=case.outputs,
        slo=case.slo,
        rate=case.rate,
        requests=1000,
        capacity=True,
    )
    simulated = answer.scenarios[0].capacity_range_per_s
    if simulated is None:
        raise ValueError(f"{case} does not fit in memory")
    return capacity.requests_per_s.scaled(replicas), simulated


if __name__ == "__main__":
    main()
