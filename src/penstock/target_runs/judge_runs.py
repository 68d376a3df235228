"""Judges the runs of a bench: requests in time, goodput and dollars per million tokens, with medians and ranges."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import median
from typing import Final

import numpy as np

from penstock.load_tools.load_run import LoadRun
from penstock.load_tools.usable_runs import refusals
from penstock.target_runs.bench_target import BenchLoad, BenchTarget
from penstock.target_runs.interleaved_runs import BenchRun

_HOUR_S: Final = 3600
_MTOK: Final = 1e6
_MIN_PROMPT: Final = 0.95
_MAX_PROMPT: Final = 1.1
_TEMPLATE_TOKENS: Final = 64
"""Tokens that a chat template may add to a prompt."""
_SAME_RATE: Final = 1e-3
_RATE_SIGMAS: Final = 4
"""Random gaps make the rate of n arrivals vary by 1 / sqrt(n); rates above four times that were not asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MedianRange:
    """Median, lowest and highest value over repetitions."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRepetition:
    """One run, its requests within the SLO, and the reasons that forbid its use."""

    run: LoadRun
    in_time_fraction: float
    """Share of all requests, including failed ones, that met every limit."""
    good_requests_per_s: float
    good_output_tokens_per_s: float
    """Output tokens per second of the requests that met every limit."""
    refusals: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchCell:
    """All repetitions of one load on one target."""

    load: BenchLoad
    repetitions: tuple[JudgedRepetition, ...]
    """Repetitions with a result file."""

    @property
    def usable(self) -> tuple[JudgedRepetition, ...]:
        """Return the repetitions that were not disturbed."""
        return tuple(one for one in self.repetitions if not one.refusals)

    @property
    def refusals(self) -> tuple[str, ...]:
        """Return why repetitions cannot be used, each with its file."""
        return tuple(f"{one.run.where}. {reason}" for one in self.repetitions for reason in one.refusals)

    def over_repetitions(self, value: Callable[[JudgedRepetition], float]) -> MedianRange | None:
        """Return the median and the range of a value over usable repetitions; None if there is none."""
        found = [value(one) for one in self.usable]
        return MedianRange(median=median(found), low=min(found), high=max(found)) if found else None

    @property
    def in_time(self) -> MedianRange | None:
        """Return the share of requests within the SLO."""
        return self.over_repetitions(lambda one: one.in_time_fraction)

    @property
    def goodput(self) -> MedianRange | None:
        """Return the requests per second within the SLO."""
        return self.over_repetitions(lambda one: one.good_requests_per_s)

    @property
    def good_output_tokens(self) -> MedianRange | None:
        """Return the output tokens per second of requests within the SLO."""
        return self.over_repetitions(lambda one: one.good_output_tokens_per_s)

    @property
    def ttft(self) -> MedianRange | None:
        """Return the mean time to first token in seconds."""
        return self.over_repetitions(lambda one: one.run.ttft.mean_s)

    @property
    def tpot(self) -> MedianRange | None:
        """Return the mean time per output token in seconds."""
        return self.over_repetitions(lambda one: one.run.tpot.mean_s)

    @property
    def passes(self) -> bool | None:
        """Return whether enough requests were in time in the median repetition; None without a usable repetition."""
        found = self.in_time
        return None if found is None else found.median >= self.load.at_least_fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedTarget:
    """One target with its loads."""

    target: BenchTarget
    cells: tuple[BenchCell, ...]

    @property
    def passes(self) -> bool | None:
        """Return whether every load passes; None if a load is undetermined and none fails."""
        verdicts = [cell.passes for cell in self.cells]
        return False if False in verdicts else None if None in verdicts else True

    @property
    def usd_per_mtok(self) -> MedianRange | None:
        """Return the dollars per million output tokens within the SLO, at the highest load that passes."""
        passed = [cell for cell in self.cells if cell.passes]
        usd = self.target.usd_per_hour
        if usd is None or not passed:
            return None
        best = max(passed, key=lambda cell: cell.load.requests_per_s)
        return best.over_repetitions(lambda one: usd * _MTOK / (_HOUR_S * one.good_output_tokens_per_s))


def judge_target(target: BenchTarget, found: Sequence[tuple[BenchRun, LoadRun]], *, replayed: bool) -> JudgedTarget:
    """Judge all runs of a target. `replayed` says whether the load tool sent the requests of the run's file."""
    cells = []
    for load in target.loads:
        own = [(asked, run) for asked, run in found if asked.target is target and asked.load is load]
        judged = tuple(judge_run(asked, run, replayed=replayed) for asked, run in own)
        cells.append(BenchCell(load=load, repetitions=judged))
    return JudgedTarget(target=target, cells=tuple(cells))


def judge_run(asked: BenchRun, found: LoadRun, *, replayed: bool) -> JudgedRepetition:
    """Count the requests of a run that met every limit, and find what disturbed the run."""
    run = _with_asked_load(asked, found, replayed=replayed)
    records = run.records
    met = asked.target.slo.met(
        ttft_s=np.array([one.ttft_s for one in records], np.float64),
        tpot_s=np.array([np.nan if one.tpot_s is None else one.tpot_s for one in records], np.float64),
        e2e_s=np.array([one.latency_s for one in records], np.float64),
    )
    tokens = np.array([one.output_tokens for one in records], np.float64)
    return JudgedRepetition(
        run=run,
        in_time_fraction=float(met.sum()) / max(1, run.completed + run.failed),
        good_requests_per_s=float(met.sum()) / run.duration_s,
        good_output_tokens_per_s=float(tokens[met].sum()) / run.duration_s,
        refusals=(*_other_run(asked, found, replayed=replayed), *refusals(run), *_other_load(asked, run)),
    )


def _other_run(asked: BenchRun, found: LoadRun, *, replayed: bool) -> Iterator[str]:
    """Yield the facts that a file states and that show another run than the one that was asked for."""
    sent, load = found.completed + found.failed, asked.load
    if sent > load.requests:
        yield f"The file is of {sent} requests, not of the {load.requests} that were asked for."
    if replayed:
        return  # the tool sends the starts of the requests file, and states no rate
    stated = found.asked_rate_per_s
    if found.closed_loop:
        yield f"The file is of {found.users} users in a closed loop, not of {load.requests_per_s:.3g} requests/s."
    elif stated is not None and abs(stated / load.requests_per_s - 1) > _SAME_RATE:
        yield f"The file is of {stated:.3g} requests per second, not of {load.requests_per_s:.3g}."
    elif found.most_in_flight is not None:
        yield f"The load tool sent no more than {found.most_in_flight} requests at once; leave out the limit."


def _with_asked_load(asked: BenchRun, run: LoadRun, *, replayed: bool) -> LoadRun:
    """Add the asked load to a run, and how late its requests started if the tool replayed the planned starts."""
    planned = asked.requests()
    lateness_s = run.lateness_s
    if replayed and len(run.records) == len(planned):
        starts = np.array([one.start_s for one in run.records])
        lateness_s = max(0.0, float((starts - (planned.arrival_s - planned.arrival_s[0])).mean()))
    return replace(
        run,
        asked_requests=asked.load.requests,
        asked_rate_per_s=asked.load.requests_per_s,
        users=None,
        lateness_s=lateness_s,
        input_length=replace(run.input_length, asked=float(planned.input_tokens.mean())),
        output_length=replace(run.output_length, asked=float(planned.output_tokens.mean())),
    )


def _other_load(asked: BenchRun, run: LoadRun) -> Iterator[str]:
    """Yield the reasons why a run did not apply the load that was asked for."""
    if not run.has_all_records:
        yield "The file does not list its requests, so those in time cannot be counted."
    served, wanted = run.input_length.mean, run.input_length.asked or 0.0
    if not _MIN_PROMPT * wanted <= served <= _MAX_PROMPT * wanted + _TEMPLATE_TOKENS:
        yield (
            f"Prompts had {served:.0f} tokens at the server, not the {wanted:.0f} that were asked for; "
            "name the server's tokenizer with --tokenizer."
        )
    applied, rate = run.arrivals_per_s, asked.load.requests_per_s
    spread = 1 + _RATE_SIGMAS / sqrt(asked.load.requests)
    if applied is not None and applied > rate * spread:
        yield f"Requests arrived at {applied:.3g} per second, not at the {rate:.3g} that were asked for."
