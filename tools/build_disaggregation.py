"""Fits what engines that only prefill or only decode take longer, and keeps its errors as tables (two minutes)."""

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, combinations
from math import exp, expm1
from pathlib import Path
from statistics import median

import numpy as np
from rerun_disaggregated import DisaggregatedRerun, rerun_disaggregated
from result_tables import keep

from penstock.catalog import load_measurements
from penstock.performance.disaggregated.phase_factors import PhaseSpread
from penstock.performance.shipped.shipped_disaggregated import (
    Guess,
    fit_phase_factors,
    handovers,
    held_out_guesses,
    published_disaggregated,
    runs,
    stack_alone,
)

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "src/penstock/catalog/data/disaggregation.json"
_WORST = 12
_MONTH_DAYS = 31
_LABELLED = 2026


def main() -> int:
    """Fit and write."""
    found = runs()
    apart = fit_phase_factors(found)
    DATA.write_text(json.dumps(apart.document(), indent=1) + "\n", encoding="utf-8")
    ways = {
        "nothing fitted": stack_alone(found),
        "configuration": held_out_guesses(found, "configuration"),
        "model": held_out_guesses(found, "model"),
    }
    plain, drafting = (
        {way: [guess for guess in guesses if bool(guess.run.row.drafted) == drafted] for way, guesses in ways.items()}
        for drafted in (False, True)
    )
    alone, unseen, other_model = plain.values()
    again = [rerun_disaggregated(guess) for guess in unseen]
    tables = {
        "overall": _overall(plain),
        "drafting": _overall(drafting),
        "stacks": _stacks(alone, unseen, other_model),
        "models": _table("model", unseen, lambda guess: f"{guess.run.row.model} {guess.run.row.weights}"),
        "bounds": _table("full", unseen, lambda guess: guess.steady.bound_by),
        "worst": _worst(unseen),
        "simulated": _simulated(again),
        "repeats": _noise(),
        "coverage": _coverage(unseen, apart.seen),
    }
    for name, table in tables.items():
        keep(f"disaggregation-{name}", table)
    later_s = [later_s for _, later_s in handovers()]
    print(tables["overall"], tables["drafting"], _counts(), _early(unseen), sep="\n")
    print(f"P10-P90 of measured over predicted: {_spreads(apart.seen)}; elsewhere {_spreads(apart.unseen)}")
    print(f"A handover takes {median(later_s):.2f} s, the median of {len(later_s)} pairs.")
    return 0


def _counts() -> dict[str, str]:
    every = [row for row in load_measurements() if row.scenario == "disaggregated"]
    return {
        "every": f"{len(every):,}",
        "drafting": f"{sum(bool(row.drafted) for row in every):,}",
        "twins": f"{sum(bool(row.twin) and not row.drafted for row in every):,}",
        "rows": f"{sum(not row.drafted for row in published_disaggregated()):,}",
        "drafting_rows": f"{sum(bool(row.drafted) for row in published_disaggregated()):,}",
        "configurations": f"{len({run.configuration for run in runs() if not run.row.drafted}):,}",
        "first_tokens": f"{sum(row.ttft_s is not None for row in published_disaggregated() if not row.drafted):,}",
    }


def _errors(guesses: Iterable[Guess]) -> tuple[list[float], list[float], list[float]]:
    """Absolute errors relative to what was measured: rate, time per token, time to first token."""
    every = list(guesses)
    firsts = [guess.log_ttft for guess in every]
    return (
        [abs(expm1(-guess.log_rate)) for guess in every],
        [abs(expm1(-guess.log_tpot)) for guess in every],
        [abs(expm1(-first)) for first in firsts if first is not None],
    )


def _cells(errors: Sequence[float]) -> str:
    if not errors:
        return "- | -"
    return f"{median(errors):.1%} | {float(np.quantile(errors, 0.9)):.0%}"


def _overall(ways: Mapping[str, Sequence[Guess]]) -> str:
    lines = [
        "| held out | tokens/s per device: median | p90 | TPOT: median | p90 | TTFT: median | p90 |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, guesses in ways.items():
        lines.append(f"| {name} | " + " | ".join(_cells(errors) for errors in _errors(guesses)) + " |")
    return "\n".join(lines) + "\n"


def _simulated(again: Sequence[DisaggregatedRerun]) -> str:
    """Errors of the simulator on the same rows, and how far the closed form is from it."""
    off = [[abs(expm1(-log)) for log in logs] for logs in zip(*((r.log_rate, r.log_tpot) for r in again), strict=True)]
    pairs = ((r.log_rate - r.guess.log_rate, r.log_tpot - r.guess.log_tpot) for r in again)
    between = [[abs(expm1(log)) for log in logs] for logs in zip(*pairs, strict=True)]
    lines = [
        "| | tokens/s: median | p90 | TPOT: median | p90 |",
        "|---|---|---|---|---|",
        f"| simulated, relative to measured | {_cells(off[0])} | {_cells(off[1])} |",
        f"| closed form, relative to simulated | {_cells(between[0])} | {_cells(between[1])} |",
    ]
    return "\n".join(lines) + "\n"


def _early(guesses: Sequence[Guess]) -> str:
    """Errors of the TensorRT-LLM runs of 2025, whose split labels are doubted."""
    early = [guess for guess in guesses if guess.run.row.engine == "trtllm" and guess.run.row.date.year < _LABELLED]
    rate, tpot, _ = _errors(early)
    return f"{len(early)} rows, {median(rate):.0%} on tokens/s and {median(tpot):.0%} on TPOT"


def _noise() -> str:
    """How far dated runs of one configuration, lengths and load are from each other."""
    cells = defaultdict(list)
    for run in runs():
        if run.row.dated == "day" and not run.row.drafted:
            cells[run.configuration, run.row.input_tokens, run.row.output_tokens, run.row.concurrency].append(run)
    pairs: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for first, second in chain.from_iterable(combinations(members, 2) for members in cells.values()):
        off = (
            abs(first.requests_per_s / second.requests_per_s - 1),
            abs((first.row.tpot_s or 1.0) / (second.row.tpot_s or 1.0) - 1),
        )
        pairs[abs((first.row.date - second.row.date).days) <= _MONTH_DAYS].append(off)
    lines = ["| runs of one cell | pairs | tokens/s: median | p90 | TPOT: median | p90 |", "|---|---|---|---|---|---|"]
    for name, near in (("within a month", True), ("later", False)):
        rate, tpot = (list(column) for column in zip(*pairs[near], strict=True))
        lines.append(f"| {name} | {len(rate)} | {_cells(rate)} | {_cells(tpot)} |")
    return "\n".join(lines) + "\n"


def _stacks(*ways: Sequence[Guess]) -> str:
    sides = " | ".join(f"{name}: tokens/s | TPOT" for name in ("nothing fitted", "configuration", "model"))
    lines = [
        f"| engine, accelerator | rows | configurations | {sides} |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    grouped = [_grouped(guesses, lambda guess: " ".join(guess.run.stack)) for guesses in ways]
    for stack in sorted(grouped[0]):
        size = len({guess.run.configuration for guess in grouped[0][stack]})
        cells = [f"{median(errors):.1%}" for way in grouped for errors in _errors(way[stack])[:2]]
        lines.append(f"| {stack} | {len(grouped[0][stack]):,} | {size} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _table(called: str, guesses: Sequence[Guess], key: Callable[[Guess], str]) -> str:
    lines = [f"| {called} | rows | tokens/s: median | p90 | TPOT: median | p90 |", "|---|---|---|---|---|---|"]
    for name, members in sorted(_grouped(guesses, key).items()):
        rate, tpot, _ = _errors(members)
        lines.append(f"| {name} | {len(members):,} | {_cells(rate)} | {_cells(tpot)} |")
    return "\n".join(lines) + "\n"


def _worst(guesses: Sequence[Guess]) -> str:
    """Configurations that take most of what is above a quarter off."""
    lines = [
        "| configuration | rows | tokens/s off | TPOT off | measured TTFT s | predicted |",
        "|---|---|---|---|---|---|",
    ]
    groups = _grouped(guesses, _described)
    for name in sorted(groups, key=lambda name: -_excess(groups[name]))[:_WORST]:
        members = groups[name]
        measured = median(
            (run.row.concurrency or 0) / run.requests_per_s - run.row.output_tokens * (run.row.tpot_s or 0)
            for run in (guess.run for guess in members)
        )
        rate, tpot = (median(expm1(-log) for log in logs) for logs in _logs(members))
        predicted = median(guess.steady.ttft_s for guess in members)
        lines.append(f"| {name} | {len(members)} | {rate:+.0%} | {tpot:+.0%} | {measured:.1f} | {predicted:.1f} |")
    return "\n".join(lines) + "\n"


def _logs(members: Sequence[Guess]) -> tuple[list[float], list[float]]:
    return [guess.log_rate for guess in members], [guess.log_tpot for guess in members]


def _excess(members: Sequence[Guess]) -> float:
    return sum(max(0.0, abs(log) - 0.25) for logs in _logs(members) for log in logs)


def _described(guess: Guess) -> str:
    row, side = guess.run.row, guess.run.row.prefill
    if side is None:
        return ""
    splits = [
        f"{workers} x tp{tp} dp{dp}{' ep' if ep else ''}"
        for workers, tp, dp, ep in (
            (side.workers, side.tp, side.dp, side.ep),
            (row.decode_workers, row.tp, row.dp, row.ep),
        )
    ]
    return f"{row.engine} {row.accelerator}, {row.model} {row.weights}, {splits[0]} to {splits[1]}"


def _grouped(guesses: Sequence[Guess], key: Callable[[Guess], str]) -> dict[str, list[Guess]]:
    groups: dict[str, list[Guess]] = defaultdict(list)
    for guess in guesses:
        groups[key(guess)].append(guess)
    return groups


def _spreads(spread: PhaseSpread) -> str:
    named = {"tokens/s": spread.rate, "TPOT": spread.tpot, "TTFT": spread.ttft}
    return ", ".join(f"{name} {exp(low):.2f} to {exp(high):.2f}" for name, (low, high) in named.items())


def _coverage(guesses: Sequence[Guess], spread: PhaseSpread) -> str:
    lines = ["| accelerator | rows | tokens/s in P10-P90 | TPOT in P10-P90 |", "|---|---|---|---|"]
    for part, members in sorted(_grouped(guesses, lambda guess: guess.run.row.accelerator).items()):
        shares = [
            sum(low <= log <= high for log in logs) / len(members)
            for logs, (low, high) in zip(_logs(members), (spread.rate, spread.tpot), strict=True)
        ]
        lines.append(f"| {part} | {len(members):,} | {shares[0]:.0%} | {shares[1]:.0%} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
