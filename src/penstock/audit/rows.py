"""The one distribution: every shipped row of a setup, MLPerf included, and predictions where no row is."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from math import log
from statistics import quantiles
from typing import Final, NamedTuple

from penstock.audit.claim import Amount, Claim, Judgement, Setup, Verdict, figure
from penstock.audit.physics import alike, bounds, held, room_lines, tried_formats, where
from penstock.catalog import load_accelerator, load_measurements, load_mlperf_results, measurement_sources
from penstock.errors import PenstockError
from penstock.fleet import Parallelism
from penstock.performance.prediction.choose_engine import BEST, predict_on
from penstock.performance.shipped.shipped_runs import shape_of_name, shipped_efficiencies

_LENGTHS: Final = ((1024, 1024), (128, 128), (8192, 1024))
_SAME_LENGTH: Final = 0.2
"""Lengths whose logarithms differ by less are equal: InferenceX serves 0.9 times its nominal length."""
_SAME_USERS: Final = 0.06
_DRAFTS: Final = 2.8
"""Largest gain by speculative decoding in the shipped rows; predictions are made without."""
_RANK: Final = (Verdict.IMPLAUSIBLE, Verdict.PLAUSIBLE, Verdict.CONFIRMED)


class Row(NamedTuple):
    """One published result. Input lengths are None in MLPerf, whose data sets are fixed."""

    source: str
    scenario: str
    precision: str
    devices: int
    engine: str
    drafted: bool
    concurrency: float | None
    input_tokens: float | None
    output_tokens: float | None
    rate: float | None
    tpot_s: float | None
    ttft_s: float | None

    def value(self, metric: str) -> float | None:
        """Return the row's rate, time per token, time to first token, or rate of one user."""
        if metric == "user":
            return 1 / self.tpot_s if self.tpot_s else None
        return {"rate": self.rate, "tpot": self.tpot_s, "ttft": self.ttft_s}[metric]

    @property
    def total_rate(self) -> float | None:
        """The rate with input tokens counted."""
        if not (self.rate and self.input_tokens and self.output_tokens):
            return None
        return self.rate * (self.input_tokens + self.output_tokens) / self.output_tokens

    def near(self, setup: Setup) -> bool:
        """Return whether the row has the load of a claim. What the claim does not state matches."""
        return (
            _near(self.concurrency, setup.concurrency, _SAME_USERS)
            and _near(self.input_tokens, setup.input_tokens, _SAME_LENGTH)
            and _near(self.output_tokens, setup.output_tokens, _SAME_LENGTH)
        )


def _near(value: float | None, asked: float | None, within: float) -> bool:
    return asked is None or (value is not None and abs(log(value / asked)) <= within)


@cache
def _rows() -> dict[tuple[str, str], list[Row]]:
    """Return all rows by accelerator and shape of the model; models of equal shape are equally fast."""
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    measured = [row for use in ("evidence", "queued", "held_out") for row in load_measurements(use=use)]
    for row in measured:
        rate, users, tokens = row.output_tokens_per_s, row.concurrency, row.output_tokens
        if rate is None and users is not None and row.tpot_s is not None:
            rate = users * tokens / ((row.ttft_s or 0.0) + tokens * row.tpot_s)
        head = row.source, row.scenario, alike(row.weights), row.devices, row.engine, bool(row.drafted)
        entry = Row(*head, users, row.input_tokens, tokens, rate, row.tpot_s, row.ttft_s)
        found[row.accelerator, shape_of_name(row.model)].append(entry)
    for run in load_mlperf_results():
        last = "mlperf", run.scenario, alike(run.weights), run.devices, run.engine, bool(run.draft_tokens)
        entry = Row(*last, run.users, None, run.output_tokens, run.output_tokens_per_s, run.tpot_s, run.ttft_s)
        found[run.accelerator, shape_of_name(run.model)].append(entry)
    return found


def matching(setup: Setup) -> list[Row]:
    """Return the rows of the setup at its load. What the claim does not state matches any row."""
    wanted = {alike(setup.precision or ""), "mxfp4" if setup.precision == "int4" else ""}
    return [
        row
        for row in _rows().get((setup.accelerator or "", shape_of_name(setup.model or "")), ())
        if row.devices == setup.devices
        and (setup.precision is None or row.precision in wanted)
        and setup.engine in {None, row.engine}
        and setup.drafted in {None, row.drafted}
        and (row.scenario == "disaggregated" or not setup.disaggregated)
        and row.near(setup)
    ]


class Distribution(NamedTuple):
    """Comparable figures. The quartiles confirm, and the range with a margin is plausible."""

    values: Sequence[float]
    noun: str
    unit: str = ""

    @property
    def quartiles(self) -> tuple[float, float, float]:
        """Lower quartile, median and upper quartile."""
        if len(self.values) == 1:
            return (self.values[0],) * 3
        low, middle, high = quantiles(self.values, n=4, method="inclusive")
        return low, middle, high

    @property
    def ends(self) -> tuple[float, float]:
        """The plausible range. Few figures have a wider margin than the tenth by which two runs differ."""
        margin = 1.25 if len(self.values) < 4 else 1.1
        return min(self.values) / margin, max(self.values) * margin

    def judge(self, amount: Amount) -> Verdict:
        """Return the verdict on a figure by its place among the figures."""
        low, _, high = self.quartiles
        if amount.at_least or amount.at_most:
            middle = amount.meets(low if amount.at_least else high)
        else:
            middle = amount.overlaps(low / 1.1, high * 1.1) and amount.high < 3 * amount.low
        return Verdict.CONFIRMED if middle else _RANK[amount.overlaps(*self.ends)]

    def place(self, amount: Amount) -> str:
        """Describe the place of a figure among the figures."""
        low, median, high = (figure(value) for value in (min(self.values), self.quartiles[1], max(self.values)))
        above = sum(value < amount.low for value in self.values)
        below = sum(value > amount.high for value in self.values)
        side = f"above {above}" if above >= below else f"below {below}"
        spread = f"{low} to {high}{self.unit}, median {median}"
        return f"the claimed {amount.written} is {side} of {len(self.values)} {self.noun}, {spread}"

    def judgement(
        self, verdict: Verdict, amount: Amount, sources: tuple[tuple[str, str | None], ...] = ()
    ) -> Judgement:
        """Return the judgement with the place of the figure and its ratio to the median."""
        middle = self.quartiles[1]
        line = (
            f"{figure(amount.middle)} / {figure(middle)} = {amount.middle / middle:.3g} (claimed / median{self.unit})"
        )
        said = f"it said {figure(self.ends[0])} to {figure(self.ends[1])}{self.unit}" if verdict.negative else None
        return Judgement(verdict, self.place(amount), (line,), said, sources)


def judge_speed(claim: Claim, amount: Amount) -> Judgement:
    """Judge a rate or a time by physics, then by the rows at its load, then by the model where there is no row."""
    setup, metric = claim.setup, "user" if amount.unit == "tokens/s/user" else claim.kind
    if amount.unit == "tokens/s/device" and not setup.counted:
        setup = replace(setup, devices=load_accelerator(setup.accelerator or "").node.devices)
    if amount.unit == "tokens/s/device":
        amount = amount.scaled(setup.devices)
    limits = [limit for limit in bounds(setup) if limit.fits]
    if not limits:
        reason = f"the weights of {setup.model} do not fit in the memory of {where(setup)}"
        return Judgement(Verdict.IMPOSSIBLE, reason, room_lines(setup), "there were more devices or a narrower format")
    slack = 1 + amount.slack_fraction
    if metric == "rate":
        counted = _most_counted(claim)
        best = max(limits, key=lambda limit: min(limit.by_memory * counted, limit.by_peak))
        most = min(best.by_memory * counted, best.by_peak)
        broken = not amount.at_most and amount.low > slack * most
        reason = f"the bound of {where(setup)} is {most:,.0f} tok/s in the best case"
    else:
        best = min(limits, key=lambda limit: limit.tpot_s)
        token = amount.inverse() if metric == "user" else amount
        broken = metric != "ttft" and not token.at_least and token.high * slack < best.tpot_s
        reason = f"reading the weights once takes {best.tpot_s * 1e3:.3g} ms per token in the best case"
    if broken:
        return Judgement(Verdict.IMPOSSIBLE, reason, (best.line,), "there were more devices or a slower figure")
    return _by_evidence(replace(claim, setup=setup), amount, metric)


def _most_counted(claim: Claim) -> float:
    """Return the largest number of tokens that the claim may count per output token."""
    inputs, outputs = claim.setup.input_tokens, claim.setup.output_tokens
    return 1.0 if claim.basis == "output" else (inputs + outputs) / outputs if inputs and outputs else 9.0


def _by_evidence(claim: Claim, amount: Amount, metric: str) -> Judgement:
    best: tuple[Verdict, Distribution, list[Row]] | None = None
    for spread, confirms, rows in _sets(claim, metric):
        verdict = spread.judge(amount)
        if verdict is Verdict.CONFIRMED and not confirms:
            verdict = Verdict.PLAUSIBLE
        if best is None or _RANK.index(verdict) > _RANK.index(best[0]):
            best = verdict, spread, rows
        if verdict is Verdict.CONFIRMED or (verdict is Verdict.PLAUSIBLE and not confirms):
            break
    setup = claim.setup
    if best is None:
        return Judgement(Verdict.UNDETERMINED, f"no row and no prediction for {setup.model} on {where(setup)}")
    verdict, spread, rows = best
    known = measurement_sources()
    names = [known[name] for name in dict.fromkeys(row.source for row in rows) if name in known]
    sources = tuple((source.title, source.url) for source in names) or (("MLPerf Inference v6.1", None),) * bool(rows)
    slow = metric in {"tpot", "ttft"}
    modest = amount.low > max(spread.values) if slow else amount.high < min(spread.values)
    if (
        verdict is Verdict.IMPLAUSIBLE
        and modest
        and not (setup.concurrency and setup.input_tokens and setup.output_tokens)
    ):
        return Judgement(Verdict.PLAUSIBLE, f"{spread.place(amount)}; it is more modest than these", (), None, sources)
    return spread.judgement(verdict, amount, sources)


def _sets(claim: Claim, metric: str) -> Iterator[tuple[Distribution, bool, list[Row]]]:
    """Yield the figures by format: as output tokens, as all tokens, and scaled or predicted where no row is.

    The flag says whether the middle of the figures confirms.
    """
    setup, unit = claim.setup, " s" if metric in {"tpot", "ttft"} else " tok/s"
    rows = [row for row in matching(setup) if row.value(metric)]
    formats = sorted({row.precision for row in rows})
    groups = [[row for row in rows if row.precision == name] for name in formats] + ([rows] if len(formats) > 1 else [])
    for group in groups if claim.basis != "total" else ():
        values = [value for row in group if (value := row.value(metric))]
        yield Distribution(values, "published results", unit), True, group
    for group in groups if metric == "rate" and claim.basis != "output" else ():
        totals = [value for row in group if (value := row.total_rate)]
        if totals:
            noun = "published results with input tokens counted"
            yield Distribution(totals, noun, unit), claim.basis == "total", group
    for name in tried_formats(setup.precision):
        decided = rows and (setup.precision or name is None) and setup.says_load
        if decided or (name and not setup.precision and alike(name) in formats):
            continue  # the rows at this load decide
        scaled = [] if rows or metric != "rate" else _replicated(replace(setup, precision=name))
        if scaled:
            yield Distribution(scaled, "published results of fewer devices, scaled", unit), False, []
        ends = _predicted(setup, name, metric)
        if ends:
            yield Distribution(ends, "predictions (P10 and P90 over loads)", unit), False, []


def _replicated(setup: Setup) -> list[float]:
    """Return the rates of smaller deployments times the number of them that the devices hold."""
    found = []
    for count in (count for count in range(1, setup.devices) if setup.devices % count == 0):
        users = setup.concurrency and max(1, setup.concurrency * count // setup.devices)
        rows = matching(replace(setup, devices=count, concurrency=users))
        found += [row.rate * setup.devices / count for row in rows if row.rate]
    return found


@cache
def _predicted(setup: Setup, precision: str | None, metric: str) -> tuple[float, ...]:
    """Return P10 and P90 of a figure over every load that the claim may mean."""
    part, model = load_accelerator(setup.accelerator or ""), held(setup.model or "", precision).spec
    most = min(setup.devices, max(part.node.devices, (part.link.domain_devices if part.link else None) or 0))
    tp = max(
        count for count in (1, 2, 4, 8, 16, 32, 64) if count <= most and (count == 1 or setup.devices % count == 0)
    )
    copies, found = setup.devices // tp, []
    lengths = dict.fromkeys((setup.input_tokens or a, setup.output_tokens or b) for a, b in _LENGTHS)
    # Drafts may be on where the claim does not deny them.
    drafts = 1.0 if setup.drafted is False else _DRAFTS
    for (inputs, outputs), users in product(lengths, (setup.concurrency,) if setup.concurrency else (1, 1024 * copies)):
        load, known = (inputs, outputs, max(1, users // copies)), shipped_efficiencies()
        try:
            result = predict_on(
                model, part, Parallelism(tp=tp), cache_dtype=None, measured_engine=BEST, load=load, efficiencies=known
            )
        except PenstockError:
            return ()
        spans = {"rate": result.output_tokens_per_s.scaled(copies), "ttft": result.ttft_s}
        span = spans.get(metric, result.tpot_s)
        if result.memory.fits and span is not None:
            low, high = (1 / span.high, 1 / span.low) if metric == "user" else (span.low, span.high)
            found += [low / drafts if metric == "tpot" else low, high * drafts if metric in {"rate", "user"} else high]
    return tuple(found)


def rate_ratios(claim: Claim) -> tuple[list[float], str]:
    """Return the ratio of the best results of both sides per load, in one format or, if none is stated, in any."""
    sides = claim.setup, claim.over or Setup()
    mine, yours = (_best(side, claim.setup) for side in sides)
    ratios = [mine[key] / yours[key] for key in mine if key in yours]
    if ratios or claim.setup.model is None:
        return ratios, "loads published for both"
    for name in tried_formats(claim.setup.precision):
        top, bottom = (_predicted(replace(side, model=claim.setup.model), name, "rate") for side in sides)
        for at in range(0, len(top) if len(top) == len(bottom) else 0, 2):
            ratios += [top[at] / bottom[at + 1], top[at + 1] / bottom[at]]
    return ratios, "predictions of both (P10 and P90)"


def _best(side: Setup, setup: Setup) -> dict[tuple[object, ...], float]:
    """Return the best rate of a device by load and format; without a stated format also by load alone."""
    found: dict[tuple[object, ...], float] = defaultdict(float)
    shape = None if setup.model is None else shape_of_name(setup.model)
    models = {key: rows for key, rows in _rows().items() if key[0] == side.accelerator and shape in {None, key[1]}}
    for (_, model), row in ((key, row) for key, rows in models.items() for row in rows):
        stated = setup.precision is None or alike(setup.precision) == row.precision
        if not (row.rate and stated and row.near(setup) and (not side.counted or row.devices == side.devices)):
            continue
        load: tuple[object, ...] = (model, row.scenario, None if side.counted else row.devices)
        if row.input_tokens is not None and row.output_tokens is not None:
            load += round(row.input_tokens, -2), round(row.output_tokens, -2), row.concurrency
        any_format = () if setup.precision else ((*load, None),)
        any_load = ((),) if shape is not None and not setup.says_load else ()  # the best of each
        for key in ((*load, row.precision), *any_format, *any_load):
            found[key] = max(found[key], row.rate / row.devices)
    return found
