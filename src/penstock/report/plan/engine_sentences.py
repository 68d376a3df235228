"""Writes sentences about software: how old each side's measurements are, engines left out, and the assumed router."""

from collections.abc import Iterator

from penstock.fleet.serving_engines import ENGINES, serving_engine
from penstock.planning.plan_result import Answer, PlanResult
from penstock.planning.verification.plain_router import PlainRouter
from penstock.report.plan.plan_amounts import usd
from penstock.report.plan.sentences import in_time_share, unit_word
from penstock.units import count_text

_FAR_APART_DAYS = 90
"""Difference between the days of two engines' measurements from which on the sentence warns."""


def engine_label(name: str) -> str:
    """Return the display name of an engine."""
    return ENGINES[serving_engine(name)].label if name in ENGINES else name


def engine_sentences(result: PlanResult, answer: Answer) -> Iterator[str]:
    """State the software behind each side's speed, what engines left out would save, and the assumed router."""
    if software := _software_sentence(result, answer):
        yield software
    if saving := _saving_sentence(answer):
        yield saving
    if router := _router_sentence(answer):
        yield router


def launch_sentences(answer: Answer) -> Iterator[str]:
    """Name the winner's launches that preflight cannot check."""
    for launch in answer.unchecked_launches:
        yield (
            f"`preflight` prints the launch of {engine_label(launch.engine)} on {launch.accelerator} but has no rules "
            "to check it: start one replica before you sign."
        )


def _software_sentence(result: PlanResult, answer: Answer) -> str:
    """State the release and the day of the engines whose measurements predict the compared fleets."""
    used = {
        name for bill in (answer.winner, *answer.by_label.values()) for pool in bill.mix.pools for name in pool.replicas
    }
    # One engine may have been measured with other releases for another model.
    found = {
        (entry.accelerator.id, entry.measured_engine, capacity.software.date, capacity.software.version)
        for entry in result.candidates
        if entry.id in used
        for capacity in entry.capacities
        if capacity.software is not None
    }
    if not found:
        return ""
    said = "; ".join(
        " ".join(filter(None, (accelerator, "with", engine_label(engine), version, f"of {day}")))
        for accelerator, engine, day, version in sorted(found)
    )
    days = [day for _, _, day, _ in found]
    apart = (max(days) - min(days)).days
    months = f" They are {round(apart / 30.4)} months apart." if apart >= _FAR_APART_DAYS else ""
    return f"Speeds are predicted for the newest measured software: {said}.{months}"


def _saving_sentence(answer: Answer) -> str:
    saving = answer.engine_saving
    if saving is None:
        return ""
    engines = " and ".join(engine_label(name) for name in saving.engines)
    fleet = " + ".join(saving.accelerators)
    return f"{fleet} with {engines} would save {usd(saving.usd)}, but {saving.why}."


def _router_sentence(answer: Answer) -> str:
    """State which router the plan assumes, and what a plain router costs: requests in time, nodes and dollars."""
    plain = answer.round_robin
    if plain is None:
        return ""
    shares = ", ".join(f"{in_time_share(check)} of {check.workload} requests in time" for check in plain.checks)
    if plain.met:
        return f"The SLOs assume `penstock route`; round robin meets them too ({shares})."
    return (
        f"The SLOs assume `penstock route`. At the same peak with its headroom, round robin has only {shares}; "
        f"{_fleet_for_router(plain, unit_word(answer.winner.mix))}."
    )


def _fleet_for_router(plain: PlainRouter, unit: str) -> str:
    if plain.more_usd is None or plain.more_nodes is None:
        return "no larger fleet of these accelerators was found that meets them"
    if plain.more_nodes > 0:
        more = count_text(plain.more_nodes, f"more {unit}")
        return f"a fleet that meets them with it has {more} and costs {usd(plain.more_usd)} more"
    if usd(plain.more_usd) == "$0":
        return "a fleet that meets them with it costs the same"
    return f"a fleet that meets them with it costs {usd(plain.more_usd)} more"
