"""Explains recorded picks (choices of an endpoint), and replays recorded picks with another policy.

A sample keeps the exact records that a pick saw, so that any policy can be called again on the same bytes. The cost of
the replayed policy's choices is predicted from the information that was known at the pick.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

import numpy as np

from penstock.routing.harm import harm_of, misses, price_of, terms_of, work_seconds
from penstock.routing.latency import share_of_chance, times_of
from penstock.routing.policy_function import Pick
from penstock.routing.records import REJECTED, SERVE, Records

_RULES: Final = ("is down", "does not serve the model", "its context window is too short", "its KV cache is too small")


@dataclass(frozen=True, slots=True, eq=False)
class PickSample:
    """One pick (choice of an endpoint), and the records that the picker saw."""

    request: Records
    endpoints: Records
    hits: Records
    chosen: int

    @staticmethod
    def of(request: Records, endpoints: Records, hits: Records, chosen: int) -> "PickSample":
        """Copy the records, which change after the pick."""
        return PickSample(request.copy(), endpoints.copy(), hits.copy(), chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptLine:
    """One endpoint of a decision."""

    endpoint: int
    ruled_out: str | None
    """Reason why the endpoint could not serve the request, or None if the endpoint could."""
    cached_tokens: int = 0
    ttft_s: float = float("nan")
    tpot_s: float = float("nan")
    resident_tpot_s: float = float("nan")
    """Seconds per token of requests already at the endpoint, including random delay by other prompts."""
    miss_fraction: float = float("nan")
    """Probability that the request misses its SLO at this endpoint."""
    harm: float = float("nan")
    """Expected missed SLOs, of this request and of requests already at the endpoint, plus converted dollars.

    The endpoint with the least harm is chosen, unless it does not admit the request, or all pickers give up another.
    """
    price: float = float("nan")
    """Harm in misses of the request's own. A request that may be refused or held is admitted below a limit."""
    engine_usd: float = float("nan")
    """Cost, in dollars, of the seconds that the request adds to the endpoint's steps.

    The part of a step that all requests share is excluded.
    """
    elastic_usd: float = float("nan")
    """Part of `engine_usd` that is saved if another endpoint serves the request.

    0 if the endpoint is paid for anyway.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """An explained decision."""

    now_s: float
    input_tokens: int
    expected_output_tokens: int
    chosen: int
    lines: tuple[ReceiptLine, ...]
    waited_s: float = 0.0
    """Seconds for which the request was held at the gateway."""
    admission_misses: float = inf
    """Price above which the request was to be refused or held; infinity if it was to be served in any case."""
    shed_fraction: float = 1.0
    """Probability of a miss above which it was to be refused or held; lower for a tenant beyond its fair share."""

    @property
    def able(self) -> list[ReceiptLine]:
        """The lines of the endpoints that could serve the request."""
        return [line for line in self.lines if line.ruled_out is None]

    @property
    def line(self) -> ReceiptLine | None:
        """The receipt's line for the chosen endpoint, or None if the request was refused."""
        return None if self.chosen == REJECTED else self.lines[self.chosen]


def explain(sample: PickSample, parameters: Records) -> Receipt:
    """Return the reason why each endpoint was ruled out, or the predictions for this endpoint."""
    q = sample.request[0]
    lines = [_line(sample, index, parameters) for index in range(len(sample.endpoints))]
    return Receipt(
        now_s=float(q["now_s"]),
        input_tokens=int(q["input_tokens"]),
        expected_output_tokens=int(q["expected_output_tokens"]),
        chosen=sample.chosen,
        lines=tuple(lines),
        waited_s=float(q["waited_s"]),
        admission_misses=float(parameters["admission_misses"][0]) if q["sheddable"] != SERVE else inf,
        shed_fraction=float(parameters["shed_fraction"][0]) if q["sheddable"] != SERVE else 1.0,
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
        price=price_of(q, e, hit, parameters[0], terms),
        engine_usd=work_s * float(e["usd_per_s"]),
        elastic_usd=work_s * float(e["saved_usd_per_s"]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The choices of another policy for recorded picks, and the predicted cost of these choices."""

    chosen: tuple[int, ...]
    """The endpoint of each pick, or REJECTED."""
    agreed: int
    expected_misses: float
    """Expected missed SLOs among the requests that the policy would have sent to an endpoint."""
    engine_usd: float
    elastic_usd: float

    @property
    def refused(self) -> int:
        """Number of requests that the policy would have refused."""
        return sum(index == REJECTED for index in self.chosen)

    @property
    def miss_fraction(self) -> float:
        """Share of all requests expected to miss their SLO. A refused request counts as a miss.

        If refused requests did not count, a policy could hide late requests by refusing them.
        """
        return (self.expected_misses + self.refused) / max(1, len(self.chosen))


def replay(seen: Sequence[tuple[PickSample, Records]], pick: Pick) -> Replay:
    """Call a policy for each recorded pick, with the parameters and the fleet state recorded at this pick.

    Two values are not taken from the recording. Requests are numbered by the replay, and each endpoint's count of sent
    requests is the number that the replayed policy would have sent.
    """
    chosen, lines = list[int](), list[ReceiptLine]()
    sent: Records = np.zeros(0, np.int64)
    for number, (sample, parameters) in enumerate(seen):
        # Only every n-th request is sampled, so round robin counts the sampled requests.
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
