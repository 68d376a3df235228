"""Reads a plan from YAML, or raises a one-line error that states the correction."""

from collections import Counter
from dataclasses import fields, replace
from datetime import date
from typing import Final, cast

from penstock.audit.parsing.claim_kinds import read_saving
from penstock.audit.saving_claim import SavingClaim
from penstock.errors import UsageError
from penstock.planning.spec.accelerators_yaml import VENDORS, defaulted, ranged, read_accelerators, read_owned, words
from penstock.planning.spec.plan_types import (
    AcceleratorPlan,
    Acquisition,
    Bucket,
    Constraints,
    MoneyPlan,
    NodePlan,
    OwnedPlan,
    Plan,
    Share,
    ShareOf,
    SitePlan,
    StackPlan,
    WorkloadPlan,
)
from penstock.planning.spec.plausibility import unlikely
from penstock.planning.spec.sourced_inputs import Input
from penstock.reading.yaml import Table, Value, empty_table, read_table
from penstock.workload.slo import parse_duration, parse_slo

_WATTS_PER_KW: Final = 1000.0
_SUM_TOLERANCE: Final = 0.005
_PLAN: Final = (
    "name",
    "note",
    "start",
    "horizon_years",
    "step_months",
    "engine",
    "workloads",
    "accelerators",
    "owned",
    "orders_from",
    "acquire",
    "sites",
    "stacks",
    "engineer_usd_per_year",
    "finance",
    "node",
    "constraints",
    "claims",
    "seed",
    "draws",
    "sure",
)
_WORKLOAD: Final = (
    "name",
    "model",
    "weights",
    "engine",
    "kv",
    "mtp",
    "disaggregated",
    "slo",
    "requests_per_s",
    "users",
    "think",
    "growth_per_year",
    "mean_load",
    "lengths",
    "trace",
    "columns",
)
_SITE: Final = ("name", "usd_per_kwh", "pue", "hosting_usd_per_kw_month", "power_cap_kw", "deny")
"""Keys of a plan, a workload and a site; `plan_schema` lists the same keys for editors."""


def parse_plan(text: str, where: str, *, today: date) -> Plan:
    """Read a plan; `today` is the start if the file states none."""
    table = read_table(text, where, kind="plan", written_by="penstock plan --init").only(*_PLAN)
    engines: tuple[str, ...] = table.optional("engine", _engines, ())
    workloads = tuple(_workload(entry, engines) for entry in table.required("workloads").items())
    if not workloads:
        table.value.refuse("has no workload; add one under `workloads:`")
    twice = next((name for name, count in Counter(entry.name for entry in workloads).items() if count > 1), None)
    if twice is not None:
        table.value.refuse(f"two workloads are called '{twice}'; give each a name of its own")
    owned: tuple[OwnedPlan, ...] = table.optional("owned", read_owned, ())
    plan = Plan(
        name=table.optional("name", Value.text, where),
        note=table.optional("note", Value.text, None),
        start=table.optional("start", Value.date, today),
        horizon_years=table.optional("horizon_years", lambda entry: entry.number(low=0.25, high=15), 3.0),
        step_months=table.optional("step_months", lambda entry: entry.whole(low=1, high=180), None),
        workloads=workloads,
        accelerators=_with_owned(table.optional("accelerators", read_accelerators, ()), owned),
        owned=owned,
        orders_from=table.optional("orders_from", Value.date, None),
        acquire=table.optional("acquire", _acquire, ("buy", "rent", "contract")),
        sites=table.optional("sites", _sites, (_site(empty_table("site").only(*_SITE), "site"),)),
        stacks=table.optional("stacks", _stacks, {}),
        money=_money(table),
        node=_node(table.section("node")),
        constraints=_constraints(table.section("constraints")),
        claims=table.optional("claims", _claims, ()),
        seed=table.optional("seed", lambda entry: entry.whole(high=2**31), 0),
        draws=table.optional("draws", lambda entry: entry.whole(low=100, high=200_000), 4000),
    )
    sure = table.optional("sure", Value.flag, False)  # noqa: FBT003 - the default of a missing key
    doubts = () if sure else unlikely(plan)
    if doubts:
        raise UsageError(f"{where}: {doubts[0]}; if it is meant, add `sure: true` to the plan")
    return plan


def _with_owned(parts: tuple[AcceleratorPlan, ...], owned: tuple[OwnedPlan, ...]) -> tuple[AcceleratorPlan, ...]:
    """Add owned accelerators that the plan does not list: kept, never bought. An empty list stays empty."""
    named = {part.id for part in parts}
    missing = dict.fromkeys(entry.id for entry in owned if entry.id not in named)
    return (*parts, *(AcceleratorPlan(id=name, owned_only=True) for name in missing)) if parts else ()


def _workload(value: Value, engines: tuple[str, ...]) -> WorkloadPlan:
    table = value.table(*_WORKLOAD)
    name = table.required("name").text()
    trace = table.optional("trace", Value.text, None)
    rate = table.optional("requests_per_s", lambda entry: ranged(entry, "requests/s", low=1e-6, high=1e9), None)
    users = table.optional("users", lambda entry: ranged(entry, "users", low=1, high=1e9), None)
    if (rate is None) == (users is None) and trace is None:
        table.value.refuse("needs either `requests_per_s:` or `users:`, and not both")
    think = table.get("think")
    if think is not None and users is None:
        think.refuse("is the pause of a user between two requests; give `users:` with it, or leave it out")
    lengths = table.get("lengths")
    if (lengths is None) == (trace is None):
        table.value.refuse("needs either `lengths:` or `trace:`, and not both")
    slo = table.required("slo")
    limits = slo.parsed(parse_slo)
    if users is not None and limits.e2e_s is None and (limits.ttft_s is None or limits.tpot_s is None):
        slo.refuse("with `users:` it must say how long a request takes: give ttft and tpot, or e2e")
    return WorkloadPlan(
        name=name,
        model=table.required("model").text(),
        weights=table.optional("weights", words, ("checkpoint",)),
        engines=table.optional("engine", _engines, engines),
        kv=table.optional("kv", lambda entry: entry.choice(("auto", "bf16", "fp16", "fp8")), "auto"),
        mtp=table.optional("mtp", Value.flag, True),  # noqa: FBT003 - the default of a missing key
        disaggregated=table.optional("disaggregated", Value.flag, False),  # noqa: FBT003 - the same
        slo=limits,
        requests_per_s=None if rate is None else rate.value,
        users=None if users is None else users.value,
        demand=_demand(rate or users),
        think_s=0.0 if think is None else think.parsed(parse_duration),
        growth_per_year=defaulted(table, "growth_per_year", "workload.growth_per_year", low=-0.99, high=10),
        mean_load=defaulted(table, "mean_load", "workload.mean_load", low=0.001, high=1),
        shares=() if lengths is None else _shares(lengths),
        trace=trace,
        columns=_columns(table, trace),
    )


def _engines(value: Value) -> tuple[str, ...]:
    """Read one engine or several; whether each was measured is checked elsewhere."""
    found = words(value) if value.is_list else (value.text().lower(),)
    if not found:
        value.refuse("the list is empty; name an engine, such as vllm, or leave `engine:` out")
    return tuple(dict.fromkeys(found))


def _columns(table: Table, trace: str | None) -> dict[str, str]:
    columns = table.get("columns")
    if columns is None:
        return {}
    if trace is None:
        columns.refuse("names the columns of a trace; give `trace:` as well")
    return {meaning: entry.text() for meaning, entry in columns.table().every()}


def _demand(peak: Input | None) -> Input:
    """Return the range of a rate or of users as a factor on it; a trace has no range."""
    if peak is None:
        return Input(value=1.0, low=1.0, high=1.0, unit="x stated", source="the trace")
    scaled = replace(peak, value=1.0, low=peak.low / peak.value, high=peak.high / peak.value)
    return replace(scaled, unit="x stated")


def _shares(value: Value) -> tuple[Share, ...]:
    found = []
    for entry in value.items():
        table = entry.table("input", "output", "share")
        bucket = Bucket(input_tokens=table.required("input").tokens(), output_tokens=table.required("output").tokens())
        found.append(
            Share(bucket=bucket, fraction=table.optional("share", lambda part: part.number(low=1e-6, high=1), 1.0))
        )
    if not found:
        value.refuse("has no length; write at least one, such as {input: 1k, output: 256}")
    total = sum(share.fraction for share in found)
    if abs(total - 1) > _SUM_TOLERANCE:
        value.refuse(f"shares add up to {total:.1%}; make them 100%")
    return tuple(Share(bucket=share.bucket, fraction=share.fraction / total) for share in found)


def _acquire(value: Value) -> tuple[Acquisition, ...]:
    ways = ("buy", "rent", "contract")
    found = tuple(cast("Acquisition", entry.choice(ways)) for entry in value.items())
    if not found:
        value.refuse("write some of [buy, rent, contract]; rent is by the hour, contract for a term")
    return tuple(dict.fromkeys(found))


def _sites(value: Value) -> tuple[SitePlan, ...]:
    tables = [entry.table(*_SITE) for entry in value.items()]
    found = tuple(_site(table, table.required("name").text()) for table in tables)
    if len({site.name for site in found}) < len(found) or not found:
        value.refuse("each site needs a name of its own")
    return found


def _site(table: Table, name: str) -> SitePlan:
    return SitePlan(
        name=name,
        usd_per_kwh=defaulted(table, "usd_per_kwh", "site.usd_per_kwh"),
        pue=defaulted(table, "pue", "site.pue", low=1, high=10),
        hosting_usd_per_kw_month=defaulted(table, "hosting_usd_per_kw_month", "site.hosting_usd_per_kw_month"),
        power_cap_watts=table.optional("power_cap_kw", lambda entry: entry.number() * _WATTS_PER_KW, None),
        deny=table.optional("deny", words, ()),
    )


def _stacks(value: Value) -> dict[str, StackPlan]:
    table, found = value.table(*VENDORS), {}
    for vendor in VENDORS:
        entry = table.get(vendor)
        if entry is not None:
            found[vendor] = stack(vendor, entry.table())
    return found


def stack(vendor: str, table: Table) -> StackPlan:
    """Read the costs of a vendor's stack."""
    table.only(*(field.name for field in fields(StackPlan)))
    # A plan that states a number of engineers states all of them: none are added by fleet size.
    counted = vendor == "amd" and table.get("engineers") is None
    by_device = f"stack.{'amd.' if counted else ''}engineers_per_1000_devices"
    support = "stack.support_usd_per_device_year"
    licence, gain = "stack.licence_usd_per_device_year", "stack.software_gain_per_year"
    return StackPlan(
        engineers=defaulted(table, "engineers", "stack.engineers"),
        engineers_per_1000_devices=defaulted(table, "engineers_per_1000_devices", by_device),
        support_usd_per_device_year=defaulted(table, "support_usd_per_device_year", support),
        licence_usd_per_device_year=defaulted(table, "licence_usd_per_device_year", licence),
        software_gain_per_year=defaulted(table, "software_gain_per_year", gain, low=-0.5, high=3),
    )


def default_stack(vendor: str) -> StackPlan:
    """Return the default costs of a vendor's stack."""
    return stack(vendor, empty_table(vendor))


def _money(table: Table) -> MoneyPlan:
    finance = table.section("finance").only(
        "discount_rate", "depreciation_years", "salvage", "resale", "price_change_per_year"
    )
    return MoneyPlan(
        discount_rate=defaulted(finance, "discount_rate", "finance.discount_rate", high=1),
        depreciation_years=defaulted(finance, "depreciation_years", "finance.depreciation_years", low=0.25, high=30),
        salvage=defaulted(finance, "salvage", "finance.salvage", high=1),
        resale=defaulted(finance, "resale", "finance.resale", high=1),
        price_change_per_year=defaulted(
            finance, "price_change_per_year", "finance.price_change_per_year", low=-0.9, high=5
        ),
        engineer_usd_per_year=defaulted(table, "engineer_usd_per_year", "engineer_usd_per_year"),
    )


def _node(table: Table) -> NodePlan:
    table.only(*(field.name for field in fields(NodePlan)))
    return NodePlan(
        host_usd=defaulted(table, "host_usd", "node.host_usd"),
        network_usd_per_device=defaulted(table, "network_usd_per_device", "node.network_usd_per_device"),
        idle_power=defaulted(table, "idle_power", "node.idle_power", high=1),
        annual_failures=defaulted(table, "annual_failures", "node.annual_failures", high=1),
    )


def _constraints(table: Table) -> Constraints:
    table.only(*(field.name for field in fields(Constraints)))
    share = table.get("min_vendor_share")
    least = None if share is None else share.number(low=0.01, high=0.5)
    found = Constraints(
        spare_nodes=table.optional("spare_nodes", lambda entry: entry.whole(high=1000), 1),
        utilisation=defaulted(table, "utilisation", "constraints.utilisation", low=0.05, high=1),
        min_vendors=table.optional("min_vendors", lambda entry: entry.whole(low=1, high=len(VENDORS)), 1),
        min_vendor_share=least,
        max_vendor_share=table.optional("max_vendor_share", lambda entry: entry.number(low=0.01, high=1), None),
        share_of=cast("ShareOf", table.optional("share_of", lambda entry: entry.choice(("load", "devices")), "load")),
    )
    if share is not None and found.min_vendors == 1:
        share.refuse("is what each of several vendors carries; write `min_vendors: 2` beside it")
    return found


def _claims(value: Value) -> tuple[SavingClaim, ...]:
    return tuple(read_saving(entry.table()) for entry in value.items())
