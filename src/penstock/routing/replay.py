"""Why did it go there, and what would another policy have done? Picks as they were seen, explained and replayed.

A sample keeps the very records a pick saw, so that any policy can be asked again, byte for byte, and what it would have
cost is predicted from what was known then.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

import numpy as np

from penstock.routing.harm import harm_of, misses, terms_of, work_seconds
from penstock.routing.latency import share_of_chance, times_of
from penstock.routing.policy_compiler import Pick
from penstock.routing.records import REJECTED, Records

_RULES: Final = ("is down", "does not serve the model", "its context window is too short", "its KV cache is too small")


@dataclass(frozen=True, slots=True, eq=False)
class PickSample:
    """One pick as its picker saw it."""

    request: Records
    endpoints: Records
    hits: Records
    chosen: int

    @staticmethod
    def of(request: Records, endpoints: Records, hits: Records, chosen: int) -> "PickSample":
        """Copy what is about to change."""
        return PickSample(request.copy(), endpoints.copy(), hits.copy(), chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptLine:
    """One endpoint of a decision."""

    endpoint: int
    ruled_out: str | None
    """Why it could not serve the request; None where it could."""
    cached_tokens: int = 0
    ttft_s: float = float("nan")
    tpot_s: float = float("nan")
    resident_tpot_s: float = float("nan")
    """A token as those already there see it, what prompts take by chance included."""
    miss_fraction: float = float("nan")
    """Chance that the request misses its promise there."""
    harm: float = float("nan")
    """Expected missed promises, those of others and dollars included: the least wins."""
    engine_usd: float = float("nan")
    """The seconds it adds to the endpoint's steps, at the endpoint's price; what is shared with others is left out."""
    elastic_usd: float = float("nan")
    """Of that, what is saved where it does not go: nothing where the endpoint is paid anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """A decision, explained."""

    now_s: float
    input_tokens: int
    expected_output_tokens: int
    chosen: int
    lines: tuple[ReceiptLine, ...]

    @property
    def line(self) -> ReceiptLine | None:
        """The endpoint that was chosen; None where the request was rejected."""
        return None if self.chosen == REJECTED else self.lines[self.chosen]


def explain(sample: PickSample, parameters: Records) -> Receipt:
    """Say of every endpoint what ruled it out, or what was predicted there."""
    q = sample.request[0]
    lines = [_line(sample, index, parameters) for index in range(len(sample.endpoints))]
    return Receipt(
        now_s=float(q["now_s"]),
        input_tokens=int(q["input_tokens"]),
        expected_output_tokens=int(q["expected_output_tokens"]),
        chosen=sample.chosen,
        lines=tuple(lines),
    )


def _line(sample: PickSample, index: int, parameters: Records) -> ReceiptLine:
    q, e, hit = sample.request[0], sample.endpoints[index], int(sample.hits[index])
    answer = int(q["expected_output_tokens"])
    longest = int(q["input_tokens"]) + max(int(q["output_limit_tokens"]), answer)
    broken = (
        e["accepts"] == 0,
        e["serves"] & q["model"] == 0,
        longest > e["max_context_tokens"],
        q["input_tokens"] + answer * e["decodes"] > e["kv_tokens"],
    )
    ruled_out = next((reason for reason, holds in zip(_RULES, broken, strict=True) if holds), None)
    if ruled_out is not None:
        return ReceiptLine(endpoint=index, ruled_out=ruled_out, cached_tokens=hit)
    terms = terms_of(q, parameters[0], sample.endpoints, sample.hits)
    ttft_s, tpot_s, prompt_s = times_of(q, e, hit, share_of_chance(q))
    work_s = work_seconds(q, e, prompt_s)
    return ReceiptLine(
        endpoint=index,
        ruled_out=None,
        cached_tokens=hit,
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        resident_tpot_s=float(e["resident_tpot_s"]),
        miss_fraction=misses(q, e, hit, terms),
        harm=harm_of(q, e, hit, parameters[0], terms, inf),
        engine_usd=work_s * float(e["usd_per_s"]),
        elastic_usd=work_s * float(e["saved_usd_per_s"]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What another policy would have done with the same picks, and what was predicted for its choices."""

    chosen: tuple[int, ...]
    """The endpoint of each pick, or REJECTED."""
    agreed: int
    expected_misses: float
    """Of those it would have sent somewhere."""
    engine_usd: float
    elastic_usd: float

    @property
    def rejected(self) -> int:
        """How many requests it would have turned away."""
        return sum(index == REJECTED for index in self.chosen)

    @property
    def miss_fraction(self) -> float:
        """Of all requests, those expected to miss their promise; one that is turned away has missed it.

        Else policies would be compared over different requests: the late ones of one would be nowhere of another.
        """
        return (self.expected_misses + self.rejected) / max(1, len(self.chosen))


def replay(seen: Sequence[tuple[PickSample, Records]], pick: Pick) -> Replay:
    """Ask a policy again, one pick at a time, with its parameters: each sees the fleet as the one that ran left it.

    Turns are its own: of whoever takes endpoints in turn, by how many it would have sent to each itself.
    """
    chosen, lines = list[int](), list[ReceiptLine]()
    sent: Records = np.zeros(0, np.int64)
    for number, (sample, parameters) in enumerate(seen):
        # Of a sample every so many-th request is there: in turn is in turn among those.
        request, endpoints = sample.request.copy(), sample.endpoints.copy()
        if len(sent) != len(endpoints):
            sent = np.zeros(len(endpoints), np.int64)
        request["number"], endpoints["sent"] = number, sent
        index = int(pick(request, endpoints, sample.hits, parameters))
        chosen.append(index)
        if index != REJECTED:
            sent[index] += 1
            lines.append(_line(sample, index, parameters))
    return Replay(
        chosen=tuple(chosen),
        agreed=sum(index == sample.chosen for index, (sample, _) in zip(chosen, seen, strict=True)),
        expected_misses=float(sum(line.miss_fraction for line in lines)),
        engine_usd=float(sum(line.engine_usd for line in lines)),
        elastic_usd=float(sum(line.elastic_usd for line in lines)),
    )
