"""JSON document of `plan --json`: the whole answer as plain values, named as in the code."""

from collections.abc import Mapping
from typing import Final

from penstock.fleet.disaggregated_replica import Disaggregated
from penstock.planning.candidates.candidate_search import Candidate
from penstock.planning.make_plan import Answer, Bill, NoFleet, PlanResult
from penstock.planning.optimizer.problem import Mix
from penstock.report.drawing.plain_json import plain, without_infinity
from penstock.report.plan.sentences import NO_FLEET, headline

SCHEMA: Final = "penstock.plan/2"
"""Schema version. It changes if a field is renamed, removed or redefined; new fields do not change it."""


def plan_document(result: PlanResult) -> dict[str, object]:
    """Collect what `plan --json` prints."""
    answer = result.answer
    return {
        "schema": SCHEMA,
        "plan": plain(result.plan),
        "periods_years": plain(result.terms.periods),
        "capacity": result.capacity_note,
        "candidates": [_candidate(entry) for entry in result.candidates],
        "deployments_considered": result.considered,
        "left_out": plain(result.left_out),
        "unpriced": list(result.resolved.unpriced),
        "unmeasured": list(result.resolved.unmeasured),
        "assumptions": [
            {"name": entry.name, "confirmed_by": entry.confirmed_by, **_fields(entry.input)}
            for entry in result.assumptions
        ],
        "claims": [{**_fields(check), "verdicts": list(check.verdicts)} for check in result.claims],
        "answer": {"feasible": False, "headline": NO_FLEET, "reasons": list(answer.reasons)}
        if isinstance(answer, NoFleet)
        else _answer(answer),
    }


def _fields(value: object) -> Mapping[str, object]:
    document = plain(value)
    return document if isinstance(document, dict) else {}


def _candidate(entry: Candidate) -> dict[str, object]:
    return {
        "id": entry.id,
        "workload": entry.workload,
        "accelerator": entry.accelerator.id,
        "weights": entry.weights,
        "engine": entry.measured_engine,
        "parallelism": plain(entry.deployment.parallelism),
        "disaggregated": None if entry.disaggregated is None else _disaggregated(entry.disaggregated),
        "devices": entry.devices,
        "capacities": plain(entry.capacities),
    }


def _disaggregated(unit: Disaggregated) -> dict[str, object]:
    return {
        "prefill_parallelism": plain(unit.prefill.parallelism),
        "prefill_replicas": unit.prefill_replicas,
        "decode_replicas": unit.decode_replicas,
        "kv_bytes_per_s": unit.kv_bytes_per_s,
    }


def _answer(answer: Answer) -> dict[str, object]:
    return {
        "feasible": True,
        "headline": headline(answer),
        "verdict": without_infinity(plain(answer.verdict)),
        "people": plain(answer.people),
        "winner": _bill(answer.winner),
        "runners_up": [_bill(entry) for entry in answer.runners_up],
        "by_label": {label: _bill(entry) for label, entry in answer.by_label.items()},
        "confidence": without_infinity(plain(answer.confidence)),
        "tornado": without_infinity(plain(answer.swings)),
        "flips": plain(answer.flips),
        "rules": plain(answer.rules),
        "scenarios": plain(answer.scenarios),
        "owned": plain(answer.owned),
        "verified": [
            {
                "met": entry.met,
                "checks": plain(entry.checks),
                "attempts": entry.attempts,
                "added_usd": entry.added_usd,
                "cost_usd": entry.mix.cost_usd,
            }
            for entry in answer.verified
        ],
        "regret_usd": answer.regret_usd,
    }


def _bill(entry: Bill) -> dict[str, object]:
    cash = {
        "capex_usd": entry.cash.capex_usd,
        "first_order_usd": entry.cash.first_order_usd,
        "opex_usd": entry.cash.opex_usd,
        **_fields(entry.cash),
    }
    return {"label": entry.mix.label, **mix_document(entry.mix), "cost": plain(entry.cost), "cash": cash}


def mix_document(mix: Mix) -> dict[str, object]:
    """Return a fleet's pools by period."""
    return {
        "cost_usd": mix.cost_usd,
        "gap_fraction": mix.gap_fraction,
        "pools": [
            {
                "accelerator": pool.offer.accelerator,
                "vendor": pool.offer.vendor,
                "site": pool.offer.site,
                "period": pool.period,
                "kept_nodes": pool.kept_nodes,
                "owned_nodes": pool.owned_nodes,
                "contract_nodes": {
                    f"{contract.months} months": nodes
                    for contract, nodes in zip(pool.offer.contracts, pool.contract_nodes, strict=False)
                },
                "rented_nodes": pool.rented_nodes,
                "spare_nodes": pool.spare_nodes,
                "devices": pool.nodes * pool.offer.devices,
                "replicas": dict(pool.replicas),
                "load": [
                    {"replica": name, "workload": workload, "bucket": bucket, "share_fraction": share}
                    for (name, (workload, bucket)), share in pool.load.items()
                ],
            }
            for pool in mix.pools
        ],
    }
