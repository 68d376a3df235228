"""Checks speeds against the physical bounds of the hardware."""

from penstock.audit.claims.amount import Amount
from penstock.audit.claims.speed_claims import SpeedStatement
from penstock.audit.evidence.physical_limits import PhysicalLimit, max_rate, min_tpot, without_drafts
from penstock.audit.judgement import Judgement, Verdict, Working, figure, plainly, working_line
from penstock.performance.memory.budget import fit
from penstock.units import GB


def judge_by_bounds(statement: SpeedStatement, found: tuple[PhysicalLimit, ...]) -> Judgement | None:
    """Judge a claim that breaks a physical bound of its metric. Return None if the claim breaks no bound."""
    metric = statement.metric
    if metric == "requests":
        return _too_many_requests(statement, found)
    if metric == "ttft":
        return _first_token_too_soon(statement, found)
    return _too_fast(statement, found) if metric == "throughput" else _too_short(statement, found)


def _exceeds(amount: Amount, bound: float) -> bool:
    return amount.low - amount.slack > bound and not amount.at_most


def _undercuts(amount: Amount, bound: float) -> bool:
    return amount.high + amount.slack < bound and not amount.at_least


def _too_fast(statement: SpeedStatement, found: tuple[PhysicalLimit, ...]) -> Judgement | None:
    amount, best = statement.amount, max_rate(found)
    if best is None:
        return None
    if _exceeds(amount, best.max_tokens_per_s):
        return Judgement(
            verdict=Verdict.IMPOSSIBLE,
            reason=f"{amount.written} is {_times(amount.low / best.max_tokens_per_s)} what physics allows, "
            f"{figure(float(f'{best.max_tokens_per_s:.3g}'))} tok/s",
            workings=best.rate_lines(),
            true_if=f"it said at most {figure(float(f'{best.max_tokens_per_s:.3g}'))} tok/s",
        )
    plain = without_drafts(best)
    fair_step_s = plain.fair_step_s
    fair = plain.max_tokens_per_s if fair_step_s is None else plain.running / fair_step_s
    if statement.setup.drafted or not _exceeds(amount, min(fair, plain.max_tokens_per_s)):
        return None
    return Judgement(
        verdict=Verdict.IMPLAUSIBLE,
        reason=f"{amount.noun_phrase} is faster than the roofline of the load, "
        f"{figure(float(f'{fair:.3g}'))} tok/s: only drafted tokens"
        + (", cached prompts or few experts in use" if best.work.expert_bytes else " or cached prompts")
        + " could explain it",
        workings=plain.rate_lines(),
        true_if="the setup used drafted tokens or cached prompts",
    )


def _times(ratio: float) -> str:
    return f"{ratio:.2g} times" if ratio >= 1.1 else f"{ratio - 1:.1%} above"  # else it reads 1 times


def _too_short(statement: SpeedStatement, found: tuple[PhysicalLimit, ...]) -> Judgement | None:
    amount, best = statement.amount, min_tpot(found)
    if best is None:
        return None
    gb, rate = best.min_weight_s * best.work.bytes_per_s / GB, best.work.bytes_per_s / 1e12
    line = working_line(
        f"{plainly(round(gb, 2))} / {plainly(rate)} / {plainly(best.drafts)}",
        round(gb, 2) / rate / best.drafts,
        "ms per token: weights in 10^9 bytes / bandwidth in TB/s / tokens per step",
    )
    if _undercuts(amount, best.min_tpot_s):
        return Judgement(
            verdict=Verdict.IMPOSSIBLE,
            reason=f"a token takes at least {best.min_tpot_s * 1e3:.3g} ms, even for one request with drafted tokens",
            workings=(line,),
            true_if=f"it said at least {best.min_tpot_s * 1e3:.3g} ms",
        )
    plain = without_drafts(best)
    fair_s = plain.fair_step_s or plain.min_tpot_s
    if statement.setup.drafted or not _undercuts(amount, fair_s):
        return None
    return Judgement(
        verdict=Verdict.IMPLAUSIBLE,
        reason=f"{amount.noun_phrase} is shorter than the roofline of the load, {fair_s * 1e3:.3g} ms: "
        "only drafted tokens, cached prompts or users who wait instead of running could explain it",
        workings=(line,),
        true_if="fewer requests ran together, or tokens were drafted",
    )


def _first_token_too_soon(statement: SpeedStatement, found: tuple[PhysicalLimit, ...]) -> Judgement | None:
    held = [limit for limit in found if limit.holds_weights and limit.min_prompt_s]
    best = min(held, key=lambda limit: limit.min_prompt_s, default=None)
    if best is None or not _undercuts(statement.amount, best.min_prompt_s):
        return None
    micro = best.token_s * 1e6
    tokens = best.setup.input_tokens or 0
    line = working_line(
        f"{tokens} * {plainly(micro)} / 1000",
        tokens * float(plainly(micro)) / 1000,
        "ms for the prompt: tokens * microseconds of arithmetic per token at the dense peak / 1000",
    )
    return Judgement(
        verdict=Verdict.IMPLAUSIBLE,
        reason=f"the arithmetic of one prompt takes {best.min_prompt_s * 1e3:.3g} ms at the dense peak: only "
        "a cached prompt is faster",
        workings=(line,),
        true_if="most of the prompt were cached",
    )


def _context(limit: PhysicalLimit) -> float:
    setup = limit.setup
    return float((setup.input_tokens or 0) + (setup.output_tokens or 0)) or 1.0


def _min_context_tokens(limit: PhysicalLimit) -> float:
    """Return the minimum number of tokens in the KV cache per request, which is the length of the prompt.

    Answers are left out, because they are at all stages of completion and their pages are allocated only as they grow.
    """
    return float(limit.setup.input_tokens or 0) or 1.0


def _requests_line(limit: PhysicalLimit, context_tokens: float) -> Working:
    each = limit.cache_bytes(context_tokens) / 1e6
    free = limit.free_bytes / 1e6
    ranks = limit.ranks * limit.copies
    return working_line(
        f"{ranks} * {plainly(free)} / {plainly(each)}",
        ranks * float(plainly(free)) / float(plainly(each)),
        "requests: ranks * memory left after the weights / KV cache of one request, both in 10^6 bytes",
    )


def _too_many_requests(statement: SpeedStatement, found: tuple[PhysicalLimit, ...]) -> Judgement | None:
    held = [limit for limit in found if limit.holds_weights]
    best = max(held, key=lambda limit: limit.max_requests(_min_context_tokens(limit)))
    min_tokens = _min_context_tokens(best)
    max_requests = best.max_requests(min_tokens)
    if not _exceeds(statement.amount, max_requests):
        return _too_many_for_engines(statement, best)
    return Judgement(
        verdict=Verdict.IMPOSSIBLE,
        reason=f"memory holds at most {max_requests:,.0f} requests of {min_tokens:,.0f} tokens in the smallest "
        "cache format",
        workings=(_requests_line(best, min_tokens),),
        true_if="the requests shared most of their tokens as a prefix",
    )


def _too_many_for_engines(statement: SpeedStatement, limit: PhysicalLimit) -> Judgement | None:
    """Judge a claim of more requests than fit even with the smallest estimate of the engine reserves.

    Otherwise return None.
    """
    context = max(1, round((_min_context_tokens(limit) + _context(limit)) / 2))
    capacity = fit(limit.work.deployment, context).capacity
    if capacity is None or capacity.cached_requests is None:
        return None
    max_requests = limit.copies * capacity.high_tokens / context
    if not _exceeds(statement.amount, max_requests):
        return None
    return Judgement(
        verdict=Verdict.IMPLAUSIBLE,
        reason=f"with the memory that engines reserve, the smallest cache format holds {max_requests:,.0f} requests of "
        f"{context:,} tokens, the mean length of a running request",
        workings=(_requests_line(limit, float(context)),),
        true_if="the requests shared most of their tokens as a prefix",
    )


def judge_request_count(found: tuple[PhysicalLimit, ...]) -> Judgement:
    """Judge a number of requests that memory can hold, by the split that holds the most requests."""
    held = [limit for limit in found if limit.holds_weights]
    best = max(held, key=lambda limit: limit.max_requests(_context(limit)))
    return Judgement(
        verdict=Verdict.PLAUSIBLE,
        reason=f"memory holds up to {best.max_requests(_context(best)):,.0f} requests of {_context(best):,.0f} "
        "tokens; how many of them can be answered in time depends on the SLO",
        workings=(_requests_line(best, _context(best)),),
    )
