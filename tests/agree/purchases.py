"""Compares what `plan`, `guide`, `simulate --capacity` and `bill` say of one purchase."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from agree.comparison import Comparison, apart
from agree.doors import FOLDER, START, Told, ask, ask_file
from agree.inner import rent_billed
from agree.situations import Situation

_YEAR: Final = ("2026-12-01", "2027-12-01")
_ALL_SIZES: Final = [1, 2, 4, 8]
_STATED: Final = 0.005
"""Half of what a replanned flip may be off: prices and demands of both sides are this fraction apart from it."""
_SPLITS: Final = {1: [1, 2], 2: [1, 2, 4], 4: [2, 4, 8], 8: [4, 8]}
Question = dict[str, Any]


def question_of(at: Situation, *, demand: object = None) -> Question:
    """Return a plan of one workload on the accelerator and its rival."""
    splits = _SPLITS[at.devices]
    prices = at.prices or (None, None)
    parts: list[Question] = []
    for name, price in zip((at.accelerator, at.rival), prices, strict=True):
        parts.append({"id": name, "tp": splits} | ({} if price is None else {"rent_usd_per_hour": price}))
    question: Question = {
        "name": at.name,
        "start": START,
        "horizon_years": 1,
        "draws": 200,
        "workloads": [
            {
                "name": "w",
                "model": at.model,
                "weights": [at.precision or "checkpoint"],
                "mtp": False,
                "slo": at.slo,
                "requests_per_s": demand or at.rate,
                "lengths": [{"input": at.input_tokens, "output": at.output_tokens}],
            }
        ],
        "accelerators": parts,
    }
    return question | ({} if at.prices is None else {"acquire": ["rent"]})


def guide_of(question: Question) -> Question:
    """Return the guide of one cell that asks the same. A guide rents by the hour unless its file says otherwise."""
    work = question["workloads"][0]
    shared = {key: question[key] for key in ("name", "start", "horizon_years", "draws", "accelerators")}
    grid = {
        "models": work["model"],
        "prompts": [work["lengths"][0]["input"]],
        "outputs": [work["lengths"][0]["output"]],
        "loads": [work["requests_per_s"]],
        "slos": [work["slo"]],
        "ttft_per_1k": "1us",
        "weights": work["weights"],
    }
    return shared | {"grid": grid}


def plan(question: Question) -> Told:
    """Ask `plan`."""
    return ask_file("plan", question)


def compare_purchase(at: Situation) -> Iterator[Comparison]:
    """Yield comparisons of one plan with its guide, its capacity, its checks of memory and launch, and its bill."""
    question = question_of(at)
    planned, guided = plan(question), ask_file("guide", guide_of(question))
    if planned.document is None or guided.document is None:
        told = f"plan {planned.refusal[:60] or 'answers'}, guide {guided.refusal[:60] or 'answers'}"
        refused = (planned.document is None) != (guided.document is None)
        yield Comparison("served: guide / plan", float(refused), told, (planned.command, guided.command))
        return
    yield from compare_guide(planned, guided)
    yield from _candidates(at, planned)
    yield from _bill(planned)


def compare_guide(planned: Told, guided: Told) -> Iterator[Comparison]:
    """Compare a plan with the cell of its guide: vendor, cost of each vendor, and rate of each replica."""
    cell, commands = guided.document["cells"][0], (planned.command, guided.command)
    costs = costs_of(planned)
    served = f"plan {usd_text(costs) or 'no fleet'}, guide {cell['vendor'] or 'no fleet'}"
    yield Comparison("served: guide / plan", float(bool(costs) != bool(cell["vendor"])), served, commands)
    if not costs or not cell["vendor"]:
        return
    single = {vendor: usd for vendor, usd in costs.items() if vendor != "mix"}
    if single:
        cheapest = min(single, key=lambda vendor: single[vendor])
        dearer = dearer_by(single, cell["vendor"])
        told = f"guide {cell['vendor']}, plan {cheapest} ({usd_text(single)})"
        yield Comparison("cheapest vendor: guide / plan", dearer, told, commands)
    for fleet in cell["fleets"]:
        if fleet["vendor"] in single:
            ours, theirs = single[fleet["vendor"]], fleet["cost_usd"]
            told = f"{fleet['vendor']}: plan ${ours:,.0f}, guide ${theirs:,.0f}"
            yield Comparison("cost: guide / plan", apart(ours, theirs), told, commands)
        yield from _guide_rates(planned, fleet, commands)


def _guide_rates(planned: Told, fleet: Mapping[str, Any], commands: tuple[str, ...]) -> Iterator[Comparison]:
    for pool in fleet["pools"]:
        for one in planned.document["candidates"]:
            same = (one["accelerator"], one["weights"], one["capacities"][0]["measured_engine"])
            way = f"tp{one['parallelism']['tp']}"
            if same == (pool["accelerator"], pool["weights"], pool["engine"]) and way == pool["way"]:
                rate = one["capacities"][0]["requests_per_s"]["value"]
                told = f"{one['id']}: plan {rate:.4g}/s, guide {pool['rate_per_s']:.4g}/s"
                yield Comparison("rate within the SLO: guide / plan", apart(rate, pool["rate_per_s"]), told, commands)


def _candidates(at: Situation, planned: Told) -> Iterator[Comparison]:
    """Compare the replicas that a plan may choose with `simulate --capacity`, `fit` and `preflight`."""
    for number, one in enumerate(planned.document["candidates"]):
        split, capacity = one["parallelism"]["tp"], one["capacities"][0]
        setup = {"model": at.model, "on": f"{one['accelerator']}:{one['devices']}"}
        engine, context = capacity["measured_engine"], at.input_tokens + at.output_tokens
        fitted = ask("fit", **setup, precision=at.precision, engine=engine, tp=split, context=context)
        told = f"plan uses {one['id']}, fit {'agrees' if fitted.fits else fitted.refusal or 'says it does not fit'}"
        yield Comparison("runs: plan / fit", float(not fitted.fits), told, (planned.command, fitted.command))
        if at.precision is None:
            launch = ask("preflight", **setup, engine=engine, tp=split, context=context)
            verdict = launch.row.get("verdict", launch.refusal)
            told = f"plan uses {one['id']} with {engine}, preflight: {verdict}"
            yield Comparison("runs: plan / preflight", float(not launch.fits), told, (planned.command, launch.command))
        if number == 0:
            yield from _capacity(at, planned, setup, capacity)


def _capacity(at: Situation, planned: Told, setup: Question, capacity: Mapping[str, Any]) -> Iterator[Comparison]:
    """Compare the rate of a replica with the capacity of as many replicas as the plan simulated."""
    rate = capacity["requests_per_s"]["value"]
    found = re.search(r"lengths on (\d+)", capacity["grounds"])
    for replicas in sorted({1, 1 if found is None else int(found[1])}):
        told = ask(
            "simulate",
            **setup,
            **at.lengths(),
            precision=at.precision,
            engine=capacity["measured_engine"],
            replicas=replicas,
            slo=at.slo,
            rate=float(f"{rate * replicas:.3g}"),
            requests=1000,
            capacity=True,
        )
        theirs = (told.row.get("capacity_per_s") or 0.0) / replicas
        said = f"plan {rate:.4g}/s a replica, simulate {theirs:.4g}/s as {replicas}"
        kind = "rate within the SLO: plan / simulate --capacity"
        kind += ", one replica" if replicas == 1 else ", as many replicas"
        yield Comparison(kind, apart(rate, theirs), said, (planned.command, told.command))


def _bill(planned: Told) -> Iterator[Comparison]:
    """Compare the rent that a plan pays in its year with the rent that `bill` finds for its fleet."""
    if not costs_of(planned):
        return
    fleets = planned.answer.fleets()
    paid = sum(year["rent_usd"] for year in planned.document["answer"]["winner"]["cash"]["years"])
    billed = rent_billed(fleets[0][1], *_YEAR, FOLDER)
    told = f"plan pays ${paid:,.0f} of rent a year, bill of its fleet file ${billed:,.0f}"
    fleet = planned.command.split()[-1].replace(".yaml", ".fleet.yaml")
    bill = f"penstock bill receipts.jsonl --fleet {fleet} --from {_YEAR[0]} --to {_YEAR[1]}  # receipts.jsonl is empty"
    yield Comparison("rent: plan / bill", apart(paid, billed), told, (f"{planned.command} --fleet {fleet}", bill))


def compare_sizes(at: Situation) -> Iterator[Comparison]:
    """State the sizes of instances: those that the plan printed, and those of the other vendor."""
    yield from compare_stated_sizes(question_of(at))
    yield from compare_guide_sizes(guide_of(question_of(at)))


def compare_stated_sizes(question: Question) -> Iterator[Comparison]:
    """State the printed sizes, which must change nothing, and small ones, which show what a unit's size decides."""
    base = plan(question)
    if not costs_of(base):
        return
    printed = {part["id"]: part["instances"] for part in base.document["plan"]["accelerators"]}
    same = plan(_with_parts(question, lambda part: {"instances": _sizes_of(printed, part["id"])}))
    yield _cost_moved("stated default: plan, instances as printed", base, same)
    small = plan(_with_parts(question, lambda _: {"instances": _ALL_SIZES}))
    if not costs_of(small):
        return
    ours, theirs = _label(base), _label(small)
    named = any("instance" in one["id"] for one in base.document["answer"]["flips"])
    gap = apart(_total(base), _total(small)) if ours != theirs and not named else 0.0
    told = f"{ours} {usd_text(costs_of(base))}; with instances {_ALL_SIZES}: {theirs} {usd_text(costs_of(small))}"
    yield Comparison("vendor turns by the size of instances, unsaid: plan", gap, told, (base.command, small.command))


def _sizes_of(printed: Mapping[str, Sequence[int]], name: str) -> list[int]:
    return next(list(sizes) for part, sizes in printed.items() if part == name or part.startswith(f"{name}_"))


def compare_guide_sizes(question: Question) -> Iterator[Comparison]:
    """Compare the vendor of each cell of a guide with and without sizes of instances."""
    base = ask_file("guide", question)
    small = ask_file("guide", _with_parts(question, lambda _: {"instances": _ALL_SIZES}))
    if base.document is None or small.document is None:
        return
    commands = (base.command, small.command)
    for ours, theirs in zip(base.document["cells"], small.document["cells"], strict=True):
        if not (ours["vendor"] and theirs["vendor"]):
            continue
        turned = ours["vendor"] != theirs["vendor"] and "instance" not in str(ours["binding"])
        told = (
            f"{ours['input_tokens']:,} tokens, {ours['requests_per_s']:g}/s: {ours['vendor']} ${ours['cost_usd']:,.0f} "
        )
        told += f"({ours['margin_fraction'] or 0:+.0%}, decided by {ours['binding']}); "
        told += f"with instances {_ALL_SIZES}: {theirs['vendor']} ${theirs['cost_usd']:,.0f}"
        gap = apart(ours["cost_usd"], theirs["cost_usd"]) if turned else 0.0
        yield Comparison("vendor turns by the size of instances, unsaid: guide", gap, told, commands)


def compare_defaults(at: Situation) -> Iterator[Comparison]:
    """State the defaults that a plan and a guide print."""
    question = question_of(at)
    base = plan(question)
    if not costs_of(base):
        return
    for name, stated in _printed(base.document["plan"], question).items():
        yield _cost_moved(f"stated default: plan, {name}", base, plan(question | stated))
    asked = guide_of(question)
    first = ask_file("guide", asked)
    again = ask_file(
        "guide", asked | {"acquire": ["rent"], "constraints": {"confidence": first.document["confidence"]}}
    )
    ours, theirs = (told.document["cells"][0].get("cost_usd") for told in (first, again))
    told = f"guide {ours}, with acquire and confidence stated {theirs}"
    yield Comparison("stated default: guide", apart(ours or 0.0, theirs or 0.0), told, (first.command, again.command))


def _printed(plan_read: Mapping[str, Any], question: Question) -> dict[str, Question]:
    """Return the keys that state what a plan printed, by the part of the file."""
    money, node, rules = dict(plan_read["money"]), plan_read["node"], plan_read["constraints"]
    engineer = money.pop("engineer_usd_per_year")
    work = plan_read["workloads"][0]
    stated_work = {name: _input(work[name]) for name in ("mean_load", "growth_per_year")}
    stated_work |= {"kv": work["kv"], "engine": work["engines"]} if work["engines"] else {"kv": work["kv"]}
    site = {name: _input(plan_read["sites"][0][name]) for name in ("usd_per_kwh", "pue", "hosting_usd_per_kw_month")}
    stacks = {
        vendor: {name: _input(value) for name, value in stack.items()} for vendor, stack in plan_read["stacks"].items()
    }
    return {
        "finance": {"finance": {name: _input(value) for name, value in money.items()}},
        "people": {"engineer_usd_per_year": _input(engineer), "stacks": stacks},
        "node and site": {
            "node": {name: _input(value) for name, value in node.items()},
            "sites": [{"name": plan_read["sites"][0]["name"]} | site],
        },
        "constraints": {
            "constraints": {
                "spare_nodes": rules["spare_nodes"],
                "utilisation": _input(rules["utilisation"]),
                "confidence": rules["confidence"],
                "min_vendors": rules["min_vendors"],
                "share_of": rules["share_of"],
            }
        },
        "workload": {"workloads": [question["workloads"][0] | stated_work]},
        "prices": _prices(plan_read, question),
    }


def _prices(plan_read: Mapping[str, Any], question: Question) -> Question:
    printed = {part["id"]: part for part in plan_read["accelerators"]}

    def stated(part: Question) -> Question:
        rent = next(
            one["rent"] for name, one in printed.items() if name == part["id"] or name.startswith(part["id"] + "_")
        )
        return {} if rent is None else {"rent_usd_per_hour": _input(rent)}

    return {"accelerators": _with_parts(question, stated)["accelerators"]}


def _input(printed: Mapping[str, Any]) -> Question:
    return {name: printed[name] for name in ("value", "low", "high")}


def compare_scenarios(at: Situation) -> Iterator[Comparison]:
    """Replan the scenarios of a plan whose demand is a range."""
    yield from replanned_scenarios(question_of(at, demand={"value": at.rate, "low": at.rate / 2, "high": at.rate * 2}))


def replanned_scenarios(question: Question) -> Iterator[Comparison]:
    """Compare each scenario of demand with a plan of that demand. Ranges of other workloads are replaced as well."""
    base = plan(question)
    if not costs_of(base):
        return
    for scenario in base.document["answer"]["scenarios"]:
        if scenario["name"] == "base":
            continue
        again = plan(_at_demand(question, scenario["name"]))
        if not costs_of(again):
            continue
        commands = (base.command, again.command)
        told = f"demand {scenario['name']}: {scenario['label']} ${scenario['usd']:,.0f}; "
        told += f"replanned: {_label(again)} ${_total(again):,.0f}"
        yield Comparison("cost: demand scenario / replanned", apart(scenario["usd"], _total(again)), told, commands)
        dearer = dearer_by(costs_of(again), scenario["label"])
        yield Comparison("cheapest vendor: demand scenario / replanned", dearer, told, commands)


def _at_demand(question: Question, end: str) -> Question:
    works = []
    for work in question["workloads"]:
        demand = work.get("requests_per_s")
        works.append(work | ({"requests_per_s": demand[end]} if isinstance(demand, dict) else {}))
    return question | {"workloads": works}


def compare_flips(at: Situation) -> Iterator[Comparison]:
    """Replan both sides of the flips that a plan file can state: rents by the hour and demand."""
    yield from replanned_flips(question_of(at))


def replanned_flips(question: Question, most: int = 2) -> Iterator[Comparison]:
    """Compare each side of a flip with a plan: whom the flip calls cheapest must be cheapest there."""
    base = plan(question)
    if not costs_of(base):
        return
    for flip in [one for one in base.document["answer"]["flips"] if _statable(one)][:most]:
        for side in ("below", "above"):
            value = flip["at"] * (1 + (_STATED if side == "above" else -_STATED))
            again = plan(_with_input(question, flip, value))
            if not costs_of(again):
                continue
            claimed = flip["instead"] if side == flip["side"] else flip["winner"]
            told = f"{flip['name']} {side} {flip['at']:.4g}: flip {claimed}, replanned {usd_text(costs_of(again))}"
            yield Comparison(
                "flip replanned on both sides", dearer_by(costs_of(again), claimed), told, (base.command, again.command)
            )


def _statable(flip: Mapping[str, Any]) -> bool:
    hourly = flip["kind"] == "rent" and flip["months"] is None
    return flip["kind"] == "demand" or hourly


def _with_input(question: Question, flip: Mapping[str, Any], value: float) -> Question:
    if flip["kind"] == "demand":
        name = flip["id"].split("/")[1]
        works = []
        for work in question["workloads"]:
            demand = work["requests_per_s"]
            stated = demand["value"] if isinstance(demand, dict) else demand
            works.append(work | ({"requests_per_s": stated * value} if work["name"] == name else {}))
        return question | {"workloads": works}
    part_id = flip["id"].split("/")[1]
    return _with_parts(
        question,
        lambda part: {"rent_usd_per_hour": value} if part_id in {part["id"], part["id"] + "_sxm"} else {},
    )


def compare_jumps(at: Situation) -> Iterator[Comparison]:
    """Compare a plan with the plan of 1% more demand: no cheaper, and no dearer than by one unit."""
    question = question_of(at)
    base = plan(question)
    more = plan(question_of(at, demand=round(at.rate * 1.01, 6)))
    if not (costs_of(base) and costs_of(more)):
        return
    unit = max(_unit_usd(base), _unit_usd(more))
    step = _total(more) - _total(base)
    gap = -step / _total(base) if step < 0 else max(0.0, step / unit - 1)
    told = f"{at.rate:g}/s ${_total(base):,.0f}, 1% more ${_total(more):,.0f}, the dearest unit ${unit:,.0f}"
    yield Comparison("jump at 1% of demand more: plan", gap, told, (base.command, more.command))


def _unit_usd(told: Told) -> float:
    lines = told.document["answer"]["winner"]["cost"]["lines"]
    units = [line["usd"] / line["inputs"]["nodes"] for line in lines if line["inputs"].get("nodes")]
    return max(units, default=1.0)


def _with_parts(question: Question, more: Callable[[Question], Question]) -> Question:
    return question | {"accelerators": [part | more(part) for part in question["accelerators"]]}


def _cost_moved(kind: str, base: Told, again: Told) -> Comparison:
    told = f"{_label(base)} ${_total(base):,.0f}, stated "
    told += again.refusal[:60] or (f"{_label(again)} ${_total(again):,.0f}" if costs_of(again) else "no fleet")
    gap = apart(_total(base), _total(again)) if costs_of(again) else 99.0
    return Comparison(kind, gap, told, (base.command, again.command))


def costs_of(told: Told) -> dict[str, float]:
    """Return the cost of the cheapest fleet of each label; empty if no fleet serves the plan."""
    answer = {} if told.document is None else told.document["answer"]
    return {label: bill["cost_usd"] for label, bill in answer.get("by_label", {}).items()}


def dearer_by(costs: Mapping[str, float], claimed: str) -> float:
    """Return how much dearer the claimed label is than the cheapest; 99 if it has no fleet."""
    return costs[claimed] / min(costs.values()) - 1 if claimed in costs else 99.0


def _label(told: Told) -> str:
    return str(told.document["answer"]["winner"]["label"])


def _total(told: Told) -> float:
    return float(told.document["answer"]["winner"]["cost_usd"])


def usd_text(costs: Mapping[str, float]) -> str:
    return ", ".join(f"{label} ${usd:,.0f}" for label, usd in sorted(costs.items(), key=lambda one: one[1]))
