"""Defines the grid of a guide: models, prompt lengths, output lengths, SLOs and loads."""

from dataclasses import dataclass, replace
from itertools import product
from typing import Final

from penstock.planning.spec.plan_types import Bucket, Plan, Share, WorkloadPlan
from penstock.workload.slo import Slo

_DIGITS: Final = 6
"""Decimal places of a limit in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadShape:
    """A workload without its load: a model, the lengths of its requests and their SLO."""

    model: str
    input_tokens: int
    output_tokens: int
    slo: Slo

    @property
    def context_tokens(self) -> int:
        """Return the tokens of a request when it ends."""
        return self.input_tokens + self.output_tokens

    def workload(self, template: WorkloadPlan, requests_per_s: float) -> WorkloadPlan:
        """Return the workload with a load; everything else is as in the template."""
        bucket = Bucket(input_tokens=self.input_tokens, output_tokens=self.output_tokens)
        return replace(
            template,
            model=self.model,
            slo=self.slo,
            requests_per_s=requests_per_s,
            shares=(Share(bucket=bucket, fraction=1.0),),
        )

    def plan(self, template: Plan, requests_per_s: float) -> Plan:
        """Return the plan of this workload at a load: the plan that a cell of the guide must agree with."""
        return replace(template, workloads=(self.workload(template.workloads[0], requests_per_s),))


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The axes of a guide."""

    models: tuple[str, ...]
    prompts: tuple[int, ...]
    """Input tokens of a request."""
    outputs: tuple[int, ...]
    slos: tuple[Slo, ...]
    loads: tuple[float, ...]
    """Requests per second at the peak."""
    ttft_per_1k_s: float = 0.0
    """Seconds added to the limit on the time to first token per 1,000 input tokens."""
    trace_loads: tuple[float, ...] = ()
    """Requests per second of each prompt length at the peak of a trace; empty without a trace."""

    @property
    def highest_load(self) -> float:
        """Return the highest load of any workload."""
        return max(*self.loads, *self.trace_loads, 0.0)

    def trace_load(self, shape: "WorkloadShape") -> float:
        """Return the requests per second of a workload at the peak of the trace; 0 without a trace."""
        loads = dict(zip(self.prompts, self.trace_loads, strict=False))
        return loads.get(shape.input_tokens, 0.0) / (len(self.outputs) * len(self.slos))

    @property
    def size(self) -> int:
        """Return the number of cells."""
        axes = (self.models, self.prompts, self.outputs, self.slos, self.loads)
        count = 1
        for axis in axes:
            count *= len(axis)
        return count

    def shapes(self) -> tuple[WorkloadShape, ...]:
        """Return every workload of the grid without its load."""
        return tuple(
            self.shape(model, prompt, output, slo)
            for model, slo, output, prompt in product(self.models, self.slos, self.outputs, self.prompts)
        )

    def shape(self, model: str, prompt: int, output: int, slo: Slo) -> WorkloadShape:
        """Return a workload of the grid, or between its points."""
        return WorkloadShape(model=model, input_tokens=prompt, output_tokens=output, slo=self._slo_at(slo, prompt))

    def with_prompt(self, shape: WorkloadShape, prompt: int) -> WorkloadShape:
        """Return a workload of the grid with another prompt."""
        more_s = self.ttft_per_1k_s * (prompt - shape.input_tokens) / 1000
        limit = shape.slo.ttft_s
        slo = shape.slo if limit is None or not more_s else replace(shape.slo, ttft_s=round(limit + more_s, _DIGITS))
        return replace(shape, input_tokens=prompt, slo=slo)

    def _slo_at(self, slo: Slo, prompt: int) -> Slo:
        if slo.ttft_s is None or not self.ttft_per_1k_s:
            return slo
        return replace(slo, ttft_s=round(slo.ttft_s + self.ttft_per_1k_s * prompt / 1000, _DIGITS))
