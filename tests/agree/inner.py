"""Doors without a public form: decisions of the policy, Retry-After and prefix blocks, and the bill of a fleet."""

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from agree.comparison import Comparison, apart
from gateway_fakes import Clock, body_fields, fleet, picker_of
from penstock.api.bill import bill
from penstock.fleet.pools import Fleet
from penstock.gateway.picker.picker import Picker, Rejection
from penstock.gateway.picker.prefix_index import PrefixIndex
from penstock.gateway.picker.request_body import RequestHints
from penstock.routing.admission import retry_after_s

SCAN: Final = Path(__file__).parents[2] / "src" / "penstock" / "gateway" / "inside_envoy" / "body_scan.h"
POLICY_DOORS: Final = Path(__file__).parents[1] / "contract" / "policy_doors.py"
REPLAY: Final = "PYTHONPATH=tests python -m agree --only picker"
"""No command reaches these doors."""


def compare_retry_after(number: int) -> list[Comparison]:
    """Compare Retry-After of the picker of ext_proc with that of the module and the simulator, in one state.

    Ordinary requests come first, then sheddable ones are refused. The first number is the reviewed state.
    """
    rng = np.random.default_rng(number)
    ordinary, endpoints = (200, 2) if number == 0 else (int(rng.integers(20, 400)), 2 * int(rng.integers(1, 5)))
    step_s = 0.052 if number == 0 else float(rng.uniform(0.02, 0.08))
    routed = fleet(endpoints)
    routed.endpoints["step_s"] = step_s
    picker, _ = picker_of(routed, clock := Clock())
    for _ in range(ordinary):
        clock.now_s += 0.01
        picker.decide(body_fields(), b"", RequestHints())
    return list(_refusals(picker, clock, f"{ordinary} ordinary requests on {endpoints} endpoints"))


def _refusals(picker: Picker, clock: Clock, state: str) -> Iterator[Comparison]:
    for refusal in range(1, 61):
        clock.now_s += 0.1
        answer = picker.decide(body_fields(), b"", RequestHints(objective="batch"))
        if not isinstance(answer, Rejection) or answer.retry_s is None or refusal not in {1, 10, 60}:
            continue
        arrays = picker._arrays  # noqa: SLF001 - the state that both doors see
        compiled_s = retry_after_s(arrays.request, picker.state.endpoints, arrays.hits, picker.state.parameters)
        theirs_s = math.ceil(compiled_s)
        told = f"{state}, refusal {refusal}: ext_proc {answer.retry_s} s, module and simulator {theirs_s} s"
        yield Comparison("Retry-After: ext_proc / module", apart(answer.retry_s, theirs_s), told, (REPLAY,))


def compare_prefix_blocks() -> list[Comparison]:
    """Compare how many blocks of a long prompt the picker of ext_proc and the module remember."""
    ours = len(PrefixIndex().keys(b"x" * 1_000_000, 0))
    found = re.search(r"SCAN_MAX_BLOCKS = (\d+)", SCAN.read_text(encoding="utf-8"))
    theirs = 0 if found is None else int(found[1])
    told = f"a prompt of 1 MB: ext_proc {ours} blocks, module {theirs}"
    return [Comparison("prefix blocks: ext_proc / module", apart(ours, theirs), told, (REPLAY,))]


def compare_policy() -> Iterator[Comparison]:
    """Compare the decisions of module, ext_proc and simulator on one trace, request by request."""
    # Buckets of tenants depend on the seed of Python's hashes.
    command, environment = [sys.executable, str(POLICY_DOORS)], {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    for line in json.loads(done.stdout)["disagreements"]:
        kind = f"{line['kind']} of one trace: {' / '.join(line['doors'])}"
        told = f"request {line['worst_request']}: {' / '.join(map(str, line['values']))}"
        replay = ("PYTHONHASHSEED=0 python tests/contract/policy_doors.py --table",)
        for number in range(line["compared"]):
            differs = number < line["differing"]
            yield Comparison(kind, float(differs), told if differs else "", replay)


def rent_billed(fleet_planned: Fleet, start: str, end: str, folder: Path) -> float:
    """Return the rent of a fleet in a period by `bill`. The receipts are empty, so that all of it is idle."""
    receipts = folder / "receipts.jsonl"
    receipts.write_text("", encoding="utf-8")
    return bill([receipts], fleet_planned, start=start, end=end).invoice.rent_usd
