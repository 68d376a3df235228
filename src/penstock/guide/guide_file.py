"""Declares the keys of a guide file: the axes of the grid, and the keys of a plan file that apply to every cell."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import date
from typing import Annotated, ClassVar, Final, Literal

from penstock.errors import UsageError
from penstock.guide.grid import Grid
from penstock.planning.spec import default_inputs as usual
from penstock.planning.spec.accelerator_entries import AcceleratorEntry
from penstock.planning.spec.plan_file import LengthEntry, PlanFile, StackEntries, WorkloadEntry, check_weights
from penstock.planning.spec.plan_types import Acquisition, Constraints, FinancePlan, NodePlan, Plan, SitePlan
from penstock.planning.spec.sourced_inputs import Input, input_of_file
from penstock.reading.file_shape import FieldError, FileShape, file_config
from penstock.reading.scalars import LOWER_CASE, Day, Flag, OrText, Parsed, Tokens, Word, number, whole
from penstock.workload.slo import Slo, parse_duration, parse_slo

DEFAULT_PROMPTS: Final = (1024, 4096, 16_384, 65_536)
DEFAULT_OUTPUTS: Final = (256,)
DEFAULT_LOADS: Final = (0.25, 1.0, 4.0, 16.0, 64.0)
DEFAULT_WEIGHTS: Final = ("checkpoint", "fp8")
DEFAULT_SLO: Final = Slo(ttft_s=2.0, tpot_s=0.06)
DEFAULT_TTFT_PER_1K_S: Final = 0.25
MIN_LOAD, MAX_LOAD = 1e-6, 1e6
"""Limits on the loads of a grid, in requests per second."""
_OR_ID: Final = OrText(lambda text: {"id": text})
_Words = Annotated[tuple[Word, ...], OrText(lambda text: [text])]
_Slo = Annotated[Slo, Parsed(parse_slo, {"type": "string"})]


@dataclass(frozen=True, slots=True, kw_only=True)
class GridEntry:
    """The axes of the grid. Every combination of their values is a workload."""

    models: Annotated[tuple[str, ...], OrText(lambda text: [text])]
    """Names from `penstock catalog models`, config.json files or checkpoint directories."""
    prompts: tuple[Tokens, ...] = DEFAULT_PROMPTS
    outputs: tuple[Tokens, ...] = DEFAULT_OUTPUTS
    loads: tuple[Annotated[float, number(low=MIN_LOAD, high=MAX_LOAD)], ...] = DEFAULT_LOADS
    """Requests per second at the peak."""
    slos: tuple[_Slo, ...] = (DEFAULT_SLO,)
    """Limits of a request: ttft=2s,tpot=60ms,attain=95%."""
    ttft_per_1k: Annotated[float, Parsed(parse_duration, {"type": "string"})] = DEFAULT_TTFT_PER_1K_S
    """Time added to the limit on the time to first token per 1,000 input tokens: 250ms."""
    weights: tuple[Word, ...] = DEFAULT_WEIGHTS
    """Weight formats to consider; `checkpoint` is the format of the files."""
    kv: Annotated[Literal["auto", "bf16", "fp16", "fp8"], LOWER_CASE] = "auto"
    engine: _Words | None = None
    """Engines to choose from. Default: every engine measured on the accelerator."""

    def __post_init__(self) -> None:
        for name in ("models", "prompts", "outputs", "loads", "slos"):
            axis = getattr(self, name)
            if not axis or len(set(axis)) < len(axis):
                raise FieldError("name at least one value, and each value once", name)
        check_weights(self.weights)

    def grid(self) -> Grid:
        """Return the axes, each in ascending order."""
        return Grid(
            models=self.models,
            prompts=tuple(sorted(self.prompts)),
            outputs=tuple(sorted(self.outputs)),
            slos=self.slos,
            loads=tuple(sorted(self.loads)),
            ttft_per_1k_s=self.ttft_per_1k,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GuideFile:
    """A guide file. Keys other than `grid` mean the same as in a plan file."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = file_config(fraction="off", power_cap_watts="power_cap_kw")

    name: str | None = None
    start: Day | None = None
    """First day of service. Default: today."""
    horizon_years: Annotated[float, number(low=0.25, high=15)] = 1.0
    grid: GridEntry
    accelerators: tuple[Annotated[AcceleratorEntry, _OR_ID], ...] | None = None
    """Accelerators to choose from. Default: every verified accelerator with a price."""
    acquire: tuple[Annotated[Acquisition, LOWER_CASE], ...] = ("buy", "rent", "contract")
    sites: tuple[SitePlan, ...] = (SitePlan(name="site"),)
    stacks: StackEntries = field(default_factory=StackEntries)
    engineer_usd_per_year: Annotated[Input, input_of_file(usual.ENGINEER_USD)] = usual.ENGINEER_USD
    finance: FinancePlan = field(default_factory=FinancePlan)
    node: NodePlan = field(default_factory=NodePlan)
    constraints: Constraints = field(default_factory=Constraints)
    seed: Annotated[int, whole(high=2**31)] = 0
    draws: Annotated[int, whole(low=100, high=200_000)] = 4000
    sure: Flag = False
    """Set to true to accept implausible amounts."""

    def __post_init__(self) -> None:
        if self.constraints.min_vendors > 1 or self.constraints.max_vendor_share is not None:
            raise FieldError(
                "a guide names one fleet per workload; use `penstock plan` for rules on vendors", "constraints"
            )
        if len(self.sites) > 1 or any(site.power_cap_watts is not None for site in self.sites):
            raise FieldError("a guide has one site without a power cap; use `penstock plan` for other sites", "sites")

    def plan(self, where: str, today: date) -> Plan:
        """Return the template of the plans of all cells; its workload is that of the first cell."""
        first = self.grid
        workload = WorkloadEntry(
            name="guide",
            model=first.models[0],
            weights=first.weights,
            engine=first.engine,
            kv=first.kv,
            slo=first.slos[0],
            requests_per_s=Input(
                value=1.0, low=1.0, high=1.0, unit="requests/s", source="the guide's grid", given=True
            ),
            lengths=(LengthEntry(input=first.prompts[0], output=first.outputs[0]),),
        )
        shared = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name != "grid"}
        return PlanFile(workloads=(workload,), **shared).plan(where, today)


GUIDE_FILE: Final = FileShape(
    of=GuideFile, kind="guide", written_by="penstock guide --init", title="A guide for `penstock guide`"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuideQuestion:
    """A grid, and the plan that holds everything else: prices, people, rules and the number of draws."""

    name: str
    grid: Grid
    template: Plan


def parse_guide(text: str, where: str, *, today: date) -> GuideQuestion:
    """Read a guide file; `today` is the start of the plans if the file states no start."""
    found = GUIDE_FILE.read(text, where)
    return question_of(found, where, today)


def question_of(found: GuideFile, where: str, today: date) -> GuideQuestion:
    """Return the question of a guide file."""
    template = found.plan(where, today)
    if template.step_months is not None:
        raise UsageError("a guide plans one period; remove `step_months`")
    return GuideQuestion(name=template.name, grid=found.grid.grid(), template=template)


EXAMPLE_GUIDE: Final = """# A guide for `penstock guide FILE`. Every combination of the grid is a workload.
name: 70B and 8B chat
grid:
  models: [llama-3.1-70b, llama-3.1-8b]   # names from `penstock catalog models`
  prompts: [1k, 4k, 16k, 64k]             # (default) input tokens
  outputs: [256]                          # (default) output tokens
  loads: [0.25, 1, 4, 16, 64]             # (default) requests per second at the peak
  slos: ["ttft=2s,tpot=60ms,attain=95%"]  # (default)
  ttft_per_1k: 250ms                      # (default) added to ttft per 1,000 input tokens
  # weights: [checkpoint, fp8]            # (default) formats to consider; the checkpoint's own is `checkpoint`
  # engine: [vllm, sglang]                # (default: every measured engine)
# Everything below means the same as in a plan file; `penstock plan --init` explains each key.
horizon_years: 1                          # (default)
acquire: [buy, rent, contract]            # (default) as in a plan
# accelerators: [h100, h200, b200, mi300x, mi325x, mi355x]   # (default: every verified one with a price)
constraints: {confidence: 80%}            # (default)
"""
