"""Declares the keys of a plan file, and reads one into a plan.

The JSON schema for editors comes from the same classes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import date
from typing import Annotated, ClassVar, Final, Literal

from penstock.errors import UsageError
from penstock.planning.saving_claim import SAVING_KEYS, SavingClaim
from penstock.planning.spec import default_inputs as usual
from penstock.planning.spec.accelerator_entries import AcceleratorEntry, OwnedEntry, split_count
from penstock.planning.spec.plan_types import (
    VENDORS,
    AcceleratorPlan,
    Acquisition,
    ApiPrice,
    Bucket,
    Constraints,
    FinancePlan,
    MoneyPlan,
    NodePlan,
    OwnedPlan,
    Plan,
    Share,
    SitePlan,
    StackPlan,
    WorkloadPlan,
)
from penstock.planning.spec.plausibility import unlikely
from penstock.planning.spec.sourced_inputs import Input, Stated, input_of_file
from penstock.reading.file_shape import FieldError, FileShape, file_config
from penstock.reading.scalars import LOWER_CASE, Day, Flag, OrText, Parsed, Tokens, Word, number, whole
from penstock.workload.slo import Slo, parse_duration, parse_slo

_ALL_VERIFIED: Final = "all verified"
_SUM_TOLERANCE: Final = 0.005
_OR_ID: Final = OrText(lambda text: {"id": text})
_Engines = Annotated[tuple[Word, ...], OrText(lambda text: [text])]


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthEntry:
    """Requests of about one length, and their share of the workload."""

    input: Tokens
    output: Tokens
    share: Annotated[float, number(low=1e-6, high=1)] = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadEntry:
    """One model and the requests it must serve at the busiest hour."""

    name: str
    model: str
    """Name from `penstock catalog models`, a config.json or a checkpoint directory."""
    weights: tuple[Word, ...] = ("checkpoint",)
    """Weight formats to consider; `checkpoint` is the format of the files."""
    engine: _Engines | None = None
    """Engine, or several to choose from. Default: every engine measured on the accelerator."""
    kv: Annotated[Literal["auto", "bf16", "fp16", "fp8"], LOWER_CASE] = "auto"
    mtp: Flag = True
    """Whether a checkpoint's own multi-token-prediction layers may draft tokens for speculative decoding."""
    disaggregated: Flag = False
    """Whether prefill and decode may run on separate replicas."""
    slo: Annotated[Slo, Parsed(parse_slo, {"type": "string"})]
    """Limits of a request: ttft=2s,tpot=60ms,attain=95%."""
    requests_per_s: Annotated[Input, Stated("requests/s", low=1e-6, high=1e9)] | None = None
    """Peak request rate at the start of the plan; alternative to `users`. Each period is sized for its last day."""
    users: Annotated[Input, Stated("users", low=1, high=1e9)] | None = None
    """Requests in flight at the peak; alternative to `requests_per_s`."""
    think: Annotated[float, Parsed(parse_duration, {"type": "string"})] | None = None
    """Pause of a user between two requests: 10s."""
    growth_per_year: Annotated[Input, input_of_file(usual.GROWTH, low=-0.99, high=10)] = usual.GROWTH
    mean_load: Annotated[Input, input_of_file(usual.MEAN_LOAD, low=0.001, high=1)] = usual.MEAN_LOAD
    """Mean demand relative to peak demand."""
    lengths: tuple[LengthEntry, ...] | None = None
    """Lengths of requests; alternative to `trace`."""
    trace: str | None = None
    """CSV, JSONL or Parquet file of requests; alternative to `lengths`."""
    columns: Mapping[str, str] | None = None
    """Column names of the trace by meaning: arrival, input, output, unit. Default: detected."""
    api: ApiPrice | None = None
    """Price of the same model on an API, to compare the fleet with. Default: the catalog's, if it has one."""

    def __post_init__(self) -> None:
        if (self.requests_per_s is None) == (self.users is None) and self.trace is None:
            raise UsageError("a workload needs either `requests_per_s:` or `users:`, but not both")
        if self.think is not None and self.users is None:
            raise FieldError(
                "`think:` is the pause of a user between two requests; add `users:` or remove `think:`", "think"
            )
        if (self.lengths is None) == (self.trace is None):
            raise UsageError("a workload needs either `lengths:` or `trace:`, but not both")
        if self.users is not None and self.slo.e2e_s is None and None in (self.slo.ttft_s, self.slo.tpot_s):
            raise FieldError(
                "with `users:` the SLO must limit a request's duration: give both ttft and tpot, or e2e", "slo"
            )
        if self.columns is not None and self.trace is None:
            raise FieldError("`columns:` names the columns of a trace; add `trace:` or remove `columns:`", "columns")
        _check_engines(self.engine)
        check_weights(self.weights)
        if self.lengths is not None:
            self._check_lengths(self.lengths)

    def _check_lengths(self, lengths: Sequence[LengthEntry]) -> None:
        if not lengths:
            raise FieldError("the list is empty; add at least one length, such as {input: 1k, output: 256}", "lengths")
        total = sum(length.share for length in lengths)
        if abs(total - 1) > _SUM_TOLERANCE:
            raise FieldError(f"the shares add up to {total:.1%}; they must add up to 100%", "lengths")

    def plan(self, engines: Sequence[str]) -> WorkloadPlan:
        """Return the workload; `engines` are the engines stated for the whole plan."""
        lengths = self.lengths or ()
        total = sum(length.share for length in lengths)
        return WorkloadPlan(
            name=self.name,
            model=self.model,
            weights=self.weights,
            engines=tuple(dict.fromkeys(engines if self.engine is None else self.engine)),
            kv=self.kv,
            mtp=self.mtp,
            disaggregated=self.disaggregated,
            slo=self.slo,
            requests_per_s=None if self.requests_per_s is None else self.requests_per_s.value,
            users=None if self.users is None else self.users.value,
            demand=_demand(self.requests_per_s or self.users),
            think_s=self.think or 0.0,
            growth_per_year=self.growth_per_year,
            mean_load=self.mean_load,
            shares=tuple(
                Share(
                    bucket=Bucket(input_tokens=length.input, output_tokens=length.output),
                    fraction=length.share / total,
                )
                for length in lengths
            ),
            trace=self.trace,
            columns=self.columns or {},
            api=self.api,
        )


def _demand(peak: Input | None) -> Input:
    """Return the range of demand as factors on the stated rate or users; the rate of a trace has no range."""
    if peak is None:
        return Input(value=1.0, low=1.0, high=1.0, unit="x stated", source="the trace")
    return replace(peak, value=1.0, low=peak.low / peak.value, high=peak.high / peak.value, unit="x stated")


def check_weights(weights: Sequence[str]) -> None:
    """Raise an error if no weight format is named."""
    if not weights:
        raise FieldError(
            "the list is empty; name a format, such as `checkpoint` or `fp8`, or remove `weights:`", "weights"
        )


def _check_engines(engines: Sequence[str] | None) -> None:
    if engines is not None and not engines:
        raise FieldError("the list is empty; name an engine, such as `vllm`, or remove `engine:`", "engine")


@dataclass(frozen=True, slots=True, kw_only=True)
class StackEntries:
    """Costs of each vendor's software stack; a vendor that is not listed has default costs."""

    amd: StackPlan | None = None
    nvidia: StackPlan | None = None
    intel: StackPlan | None = None
    google: StackPlan | None = None

    def plan(self) -> dict[str, StackPlan]:
        """Return the stated stacks by vendor."""
        stacks = {vendor: getattr(self, vendor) for vendor in VENDORS}
        return {vendor: _stack(vendor, stack) for vendor, stack in stacks.items() if stack is not None}


def default_stack(vendor: str) -> StackPlan:
    """Return the default costs of a vendor's stack."""
    return _stack(vendor, StackPlan())


def _stack(vendor: str, stack: StackPlan) -> StackPlan:
    """Add AMD's default engineers per 1,000 devices, unless the plan states another number of engineers than none."""
    floor = stack.engineers
    if vendor != "amd" or floor.value or floor.uncertain or stack.engineers_per_1000_devices.given:
        return stack
    return replace(stack, engineers_per_1000_devices=usual.AMD_ENGINEERS_BY_SIZE)


def _all_verified(text: str) -> None:
    if text.lower() != _ALL_VERIFIED:
        raise UsageError(f"must be a list of accelerators, or `{_ALL_VERIFIED}`")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFile:
    """A whole plan file."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = file_config(
        fraction="off", power_cap_watts="power_cap_kw", **SAVING_KEYS
    )

    name: str | None = None
    note: str | None = None
    start: Day | None = None
    """First day of service. Default: today."""
    horizon_years: Annotated[float, number(low=0.25, high=15)] = 3.0
    step_months: Annotated[int, whole(low=1, high=180)] | None = None
    """Months between changes of the fleet. Default: no changes; 3, 6 or 12 months if demand grows."""
    engine: _Engines | None = None
    """Engine of all workloads, or several to choose from. Default: every engine measured on the accelerator."""
    workloads: tuple[WorkloadEntry, ...]
    accelerators: Annotated[
        tuple[Annotated[AcceleratorEntry, _OR_ID], ...] | None, OrText(_all_verified, {"const": _ALL_VERIFIED})
    ] = None
    """Accelerators to choose from. Default: every verified accelerator with a price."""
    owned: tuple[Annotated[OwnedEntry, _OR_ID], ...] = ()
    """Nodes owned already: 64xh100."""
    orders_from: Day | None = None
    """First possible order date; see `lead_weeks`."""
    acquire: tuple[Annotated[Acquisition, LOWER_CASE], ...] = ("buy", "rent", "contract")
    sites: tuple[SitePlan, ...] = (SitePlan(name="site"),)
    stacks: StackEntries = field(default_factory=StackEntries)
    engineer_usd_per_year: Annotated[Input, input_of_file(usual.ENGINEER_USD)] = usual.ENGINEER_USD
    finance: FinancePlan = field(default_factory=FinancePlan)
    node: NodePlan = field(default_factory=NodePlan)
    constraints: Constraints = field(default_factory=Constraints)
    claims: tuple[SavingClaim, ...] = ()
    """Published savings to check against the plan."""
    seed: Annotated[int, whole(high=2**31)] = 0
    """Seed of the draws from which P10, P90 and probabilities are computed. The fleet does not depend on it."""
    draws: Annotated[int, whole(low=100, high=200_000)] = 4000
    sure: Flag = False
    """Set to true to accept implausible amounts; otherwise the plan is refused with a question."""

    def __post_init__(self) -> None:
        _check_engines(self.engine)
        if not self.workloads:
            raise UsageError("the plan has no workload; add one under `workloads:`")
        counts = Counter(entry.name for entry in self.workloads)
        twice = next((name for name, count in counts.items() if count > 1), None)
        if twice is not None:
            raise UsageError(f"two workloads are called '{twice}'; give each workload a different name")
        if self.accelerators is not None and not self.accelerators:
            raise FieldError(f"the list is empty; name an accelerator, or use `{_ALL_VERIFIED}`", "accelerators")
        if not self.acquire:
            raise FieldError("use at least one of `buy`, `rent` (by the hour) and `contract` (for a term)", "acquire")
        if len({site.name for site in self.sites}) < len(self.sites) or not self.sites:
            raise FieldError("each site needs a name of its own", "sites")
        places = [(split_count(entry.id)[1], entry.site) for entry in self.owned]
        if len(set(places)) < len(places):
            raise FieldError(
                "an accelerator is listed twice at one site; write one entry with all nodes, mean age and mean value",
                "owned",
            )
        if self.constraints.min_vendor_share is not None and self.constraints.min_vendors == 1:
            problem = "the minimum share of each vendor needs at least two vendors; add `min_vendors: 2`"
            raise FieldError(problem, "constraints", "min_vendor_share")

    def plan(self, where: str, today: date) -> Plan:
        """Return the plan.

        If the file states no name, the plan is named `where`; if it states no start, the plan starts on `today`.
        """
        finance = {entry.name: getattr(self.finance, entry.name) for entry in fields(FinancePlan)}
        owned = tuple(entry.plan() for entry in self.owned)
        return Plan(
            name=self.name or where,
            note=self.note,
            start=self.start or today,
            horizon_years=self.horizon_years,
            step_months=self.step_months,
            workloads=tuple(entry.plan(self.engine or ()) for entry in self.workloads),
            accelerators=_with_owned([entry.plan() for entry in self.accelerators or ()], owned),
            owned=owned,
            orders_from=self.orders_from,
            acquire=tuple(dict.fromkeys(self.acquire)),
            sites=self.sites,
            stacks=self.stacks.plan(),
            money=MoneyPlan(engineer_usd_per_year=self.engineer_usd_per_year, **finance),
            node=self.node,
            constraints=self.constraints,
            claims=self.claims,
            seed=self.seed,
            draws=self.draws,
        )


def _with_owned(listed: Sequence[AcceleratorPlan], owned: Sequence[OwnedPlan]) -> tuple[AcceleratorPlan, ...]:
    """Add owned accelerators that the plan does not list; such accelerators are never bought.

    An empty list stays empty.
    """
    names = {entry.id for entry in listed}
    missing = dict.fromkeys(entry.id for entry in owned if entry.id not in names)
    return (*listed, *(AcceleratorPlan(id=name, owned_only=True) for name in missing)) if listed else ()


PLAN_FILE: Final = FileShape(
    of=PlanFile, kind="plan", written_by="penstock plan --init", title="A plan for `penstock plan`"
)


def parse_plan(text: str, where: str, *, today: date) -> Plan:
    """Read a plan; `today` is the start of the plan if the file states no start."""
    found = PLAN_FILE.read(text, where)
    plan = found.plan(where, today)
    questions = () if found.sure else unlikely(plan)
    if questions:
        raise UsageError(f"{where}: {questions[0]}; if the amount is correct, add `sure: true` to the plan")
    return plan
