"""Writes an acceptance benchmark as YAML for vendors, and reads it back strictly."""

from collections.abc import Callable
from functools import partial
from typing import Final

import yaml

from penstock.fleet.fleet_file import SPLIT, read_slo, slo_document
from penstock.planning.acceptance_tests import (
    ACCEPTANCE_VERSION,
    Acceptance,
    AcceptanceCase,
    AcceptedLength,
    AcceptedLoad,
    PrefillReplicas,
)
from penstock.reading.yaml import Table, Value, read_table

_HEAD: Final = (
    "# Acceptance benchmark. For each case: start `replicas` replicas on `nodes` nodes behind one router that sends a\n"
    "# request to the replica with the fewest, send requests of `lengths` with these arrivals at each load, and count\n"
    "# those within `slo`: time to first token, mean time per output token after it, end to end. A load passes where\n"
    "# at least `at_least_fraction` of all its requests, failed ones included, are within.\n"
)
_APART: Final = (
    "# Where a case has `prefill`, those replicas take the prompts, send KV to the others, and those only decode.\n"
)
_CASE: Final = (
    "name",
    "workload",
    "accelerator",
    "vendor",
    "nodes",
    "replicas",
    "model",
    "weights",
    "kv",
    "engine",
    "split",
    "drafted_tokens",
    "prefill",
    "lengths",
    "slo",
    "loads",
    "node_watts_at_most",
)
_ARRIVALS: Final = ("poisson",)
_WRITTEN_BY: Final = "penstock plan plan.yaml --rfp DIRECTORY"
_DIGITS: Final = 9


def write_acceptance(acceptance: Acceptance) -> str:
    """Write a benchmark that `read_acceptance` can read."""
    document = {
        "version": acceptance.version,
        "plan": acceptance.plan,
        "arrivals": _ARRIVALS[0],
        "cases": [_case_document(case) for case in acceptance.cases],
    }
    body: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110)
    apart = any(case.prefill is not None for case in acceptance.cases)
    return _HEAD + (_APART if apart else "") + body


def read_acceptance(text: str, name: str) -> Acceptance:
    """Read a benchmark; `name` is the file name for error messages."""
    table = read_table(text, name, kind="acceptance benchmark", written_by=_WRITTEN_BY)
    table.version(ACCEPTANCE_VERSION, written_by=_WRITTEN_BY)
    table.only("version", "plan", "arrivals", "cases")
    plan = table.required("plan").text()
    table.required("arrivals").choice(_ARRIVALS)
    cases = tuple(value.made(_case) for value in table.required("cases").items())
    return Acceptance(plan=plan, cases=cases)


def _case_document(case: AcceptanceCase) -> dict[str, object]:
    return {
        "name": case.name,
        "workload": case.workload,
        "accelerator": case.accelerator,
        "vendor": case.vendor,
        "nodes": case.nodes,
        "replicas": case.replicas,
        "model": case.model,
        "weights": case.weights,
        "kv": case.kv,
        "engine": case.engine,
        "split": {"tp": case.tp, "pp": case.pp, "dp": case.dp, "ep": case.ep},
        "drafted_tokens": case.drafted_tokens,
        **({} if case.prefill is None else {"prefill": _prefill_document(case.prefill)}),
        "lengths": [
            {
                "input_tokens": length.input_tokens,
                "output_tokens": length.output_tokens,
                "share_fraction": float(f"{length.share_fraction:.{_DIGITS}g}"),
            }
            for length in case.lengths
        ],
        "slo": slo_document(case.slo),
        "loads": [
            {
                "name": load.name,
                "requests_per_s": load.requests_per_s,
                "requests": load.requests,
                "at_least_fraction": load.at_least_fraction,
            }
            for load in case.loads
        ],
        "node_watts_at_most": case.node_watts_at_most,
    }


def _prefill_document(prefill: PrefillReplicas) -> dict[str, object]:
    split = {"tp": prefill.tp, "pp": prefill.pp, "dp": prefill.dp, "ep": prefill.ep}
    return {"replicas": prefill.replicas, "split": split}


def _prefill(value: Value) -> PrefillReplicas:
    table = value.table("replicas", "split")
    split = table.required("split").table(*SPLIT)
    return PrefillReplicas(
        replicas=table.required("replicas").whole(low=1),
        tp=split.required("tp").whole(low=1),
        pp=split.required("pp").whole(low=1),
        dp=split.required("dp").whole(low=1),
        ep=split.required("ep").flag(),
    )


def _case(table: Table) -> Callable[[], AcceptanceCase]:
    table.only(*_CASE)
    split = table.required("split").table(*SPLIT)
    return partial(
        AcceptanceCase,
        name=table.required("name").text(),
        workload=table.required("workload").text(),
        accelerator=table.required("accelerator").text(),
        vendor=table.required("vendor").text(),
        nodes=table.required("nodes").whole(low=1),
        replicas=table.required("replicas").whole(low=1),
        model=table.required("model").text(),
        weights=table.required("weights").text(),
        kv=table.required("kv").text(),
        engine=table.required("engine").text(),
        tp=split.required("tp").whole(low=1),
        pp=split.required("pp").whole(low=1),
        dp=split.required("dp").whole(low=1),
        ep=split.required("ep").flag(),
        drafted_tokens=table.optional("drafted_tokens", lambda entry: entry.whole(high=64), 0),
        lengths=tuple(entry.made(_length) for entry in table.required("lengths").items()),
        slo=table.required("slo").made(read_slo),
        loads=tuple(entry.made(_load) for entry in table.required("loads").items()),
        node_watts_at_most=table.required("node_watts_at_most").number(),
        prefill=table.optional("prefill", _prefill, None),
    )


def _length(table: Table) -> Callable[[], AcceptedLength]:
    table.only("input_tokens", "output_tokens", "share_fraction")
    return partial(
        AcceptedLength,
        input_tokens=table.required("input_tokens").whole(low=1),
        output_tokens=table.required("output_tokens").whole(low=1),
        share_fraction=table.required("share_fraction").number(high=1.0),
    )


def _load(table: Table) -> Callable[[], AcceptedLoad]:
    table.only("name", "requests_per_s", "requests", "at_least_fraction")
    return partial(
        AcceptedLoad,
        name=table.required("name").text(),
        requests_per_s=table.required("requests_per_s").number(),
        requests=table.required("requests").whole(low=1),
        at_least_fraction=table.required("at_least_fraction").number(high=1.0),
    )
