"""Checks claims that a model fits in memory.

First the weights alone must fit, then the weights together with KV cache and engine reserves.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from penstock.audit.checks.spec_check import citation
from penstock.audit.claims.memory_claims import FitStatement
from penstock.audit.evidence.weight_formats import in_format, possible_formats
from penstock.audit.judgement import Cited, Judgement, Verdict, Working, plainly, working_line
from penstock.audit.reference_library import Library
from penstock.catalog.accelerator import Accelerator
from penstock.fleet import Deployment, Parallelism, engine_defaults
from penstock.model import CacheDtype, ModelSpec
from penstock.performance.memory.budget import MemoryFit, fit
from penstock.performance.memory.minimum_change import minimum_devices
from penstock.performance.memory.sharding import refusal
from penstock.units import GB

SHORT_CONTEXT = 2048
"""Context in tokens that must fit if the claim states no context."""
_OVER_LIMIT = 1.05
"""A claimed context up to this ratio times the model's context limit is taken to mean the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitAttempt:
    """The attempt to fit a model in one weight format on the devices of a claim."""

    precision: str
    weight_bytes: int
    memory_bytes: int
    best: MemoryFit | None
    """Memory fit of the split that leaves the most free memory. This is None if the engine supports no split."""
    requests: int = 1
    """Number of requests whose KV cache must fit at the same time."""

    @property
    def holds_weights(self) -> bool:
        """Whether the weights alone fit in physical memory."""
        return self.weight_bytes <= self.memory_bytes

    @property
    def fits(self) -> bool:
        """Whether the KV cache of all requests fits next to the weights and the engine reserves."""
        return self.best is not None and self.best.fits and self._holds(_room(self.best))

    @property
    def certain(self) -> bool:
        """Whether `fits` has the same value for every estimate of the engine reserves."""
        if not self.holds_weights:
            return True
        capacity = None if self.best is None else self.best.capacity
        if self.best is None or capacity is None or self.requests == 1:
            return self.best is not None and self.best.certain
        return self._holds(capacity.low_tokens) == self._holds(capacity.high_tokens)

    @property
    def lacks(self) -> str:
        """The reason why the model does not fit although its weights alone fit."""
        if self.best is None:
            return "engines support no split of the model over these devices"
        if self.best.obstacle_is("model_limit"):
            return "the claimed context is longer than the model supports"
        room = _room(self.best)
        if room <= 0:
            return "no memory is left for a KV cache after engine reserves"
        wanted = f"{self.requests} x {self.best.context_tokens:,}".removeprefix("1 x ")
        return f"the memory left after weights and engine reserves holds {room:,} tokens of KV cache, not {wanted}"

    def _holds(self, tokens: int) -> bool:
        capacity = None if self.best is None else self.best.capacity
        if self.best is None or capacity is None or capacity.cached_requests is None:
            return True
        return tokens >= self.requests * self.best.context_tokens

    @property
    def line(self) -> Working:
        """The line of arithmetic that subtracts the weights from the memory."""
        memory, weights = round(self.memory_bytes / GB, 1), round(self.weight_bytes / GB, 1)
        meaning = f"memory - {self.precision} weights, in 10^9 bytes"
        return working_line(f"{plainly(memory)} - {plainly(weights)}", memory - weights, meaning)


def attempt_fit(
    model: ModelSpec,
    precision: str,
    accelerator: Accelerator,
    devices: int,
    context_tokens: int,
    *,
    requests: int = 1,
    cache: CacheDtype | None = None,
) -> FitAttempt:
    """Try to fit a model in one weight format on the devices, with the split that leaves the most free memory."""
    held = in_format(model, precision)
    placed = placements(held, accelerator, devices)
    found = [fit(replace(deployment, cache_dtype=cache), context_tokens) for deployment in placed]
    best = max(found, key=lambda result: (result.fits, _room(result)), default=None)
    return FitAttempt(
        precision=precision,
        weight_bytes=held.weight_bytes,
        memory_bytes=devices * accelerator.memory.hbm_bytes,
        best=best,
        requests=requests,
    )


def placements(model: ModelSpec, accelerator: Accelerator, devices: int) -> Iterator[Deployment]:
    """Yield the supported splits of one replica over all devices, sorted by tensor parallelism, widest first."""
    for tp in range(devices, 0, -1):
        if devices % tp:
            continue
        split = Parallelism(tp=tp, pp=devices // tp)
        placed = Deployment(
            model=model,
            accelerator=accelerator,
            engine=engine_defaults("vllm", accelerator, tp=split.tp, pp=split.pp),
            parallelism=split,
        )
        if refusal(placed) is None:
            yield placed


def _room(result: MemoryFit) -> int:
    return result.capacity.tokens if result.capacity is not None else -1


def audit_fit(statement: FitStatement, library: Library) -> Judgement:
    """Judge a fit claim by trying the model in every weight format that the claim may mean."""
    model, accelerator = library.model_of(statement.model), library.accelerator_of(statement.accelerator)
    if statement.fewest is not None:
        return _audit_fewest(statement, model, accelerator)
    context = _within_limit(statement.context_tokens or SHORT_CONTEXT, model)
    attempts, small = (
        [
            attempt_fit(
                model, precision, accelerator, statement.devices, context, requests=statement.requests, cache=cache
            )
            for precision in possible_formats(statement.precision)
        ]
        for cache in (None, CacheDtype.FP8)
    )
    judged = _judge_fits if statement.fits else _judge_does_not_fit
    verdict, reason, true_if = judged(statement, accelerator, attempts)
    if not any(attempt.fits for attempt in attempts) and any(attempt.fits for attempt in small):
        verdict, true_if = Verdict.PLAUSIBLE, "the KV cache were in fp8" if statement.fits else None
        reason += "; an fp8 cache would fit" if statement.fits else " unless the cache is in fp8"
    sources = [
        citation(accelerator, accelerator.source_of("memory.hbm_bytes")),
        Cited(title=f"config.json of {model.name}"),
    ]
    return Judgement(
        verdict=verdict,
        reason=reason,
        workings=tuple(attempt.line for attempt in attempts),
        sources=tuple(sources),
        true_if=true_if,
    )


def _within_limit(context_tokens: int, model: ModelSpec) -> int:
    """Return the claimed context, or the model's context limit if the claim exceeds the limit by at most 5%.

    For example, a claim about a 128k prompt plus its answer means the model's limit of 128k.
    """
    limit = model.max_context_tokens or context_tokens
    return limit if limit < context_tokens <= _OVER_LIMIT * limit else context_tokens


def _where(statement: FitStatement, accelerator: Accelerator) -> str:
    return f"{statement.devices} x {accelerator.name}" if statement.devices > 1 else f"one {accelerator.name}"


def _judge_fits(
    statement: FitStatement, accelerator: Accelerator, attempts: list[FitAttempt]
) -> tuple[Verdict, str, str | None]:
    where = _where(statement, accelerator)
    fitting = [attempt for attempt in attempts if attempt.fits]
    if len(fitting) == len(attempts) and all(attempt.certain for attempt in fitting):
        return (
            Verdict.CONFIRMED,
            f"{statement.model} fits on {where}, with room for {_tokens(fitting)} tokens of KV cache",
            None,
        )
    if fitting:
        formats = " or ".join(attempt.precision for attempt in fitting)
        missing = [attempt.precision for attempt in attempts if not attempt.fits]
        but = f"but not in {' or '.join(missing)}" if missing else "but not with every estimate of the engine reserves"
        return (
            Verdict.PLAUSIBLE,
            f"on {where} {statement.model} fits in {formats}, {but}",
            f"the weights were in {formats}",
        )
    if any(attempt.holds_weights for attempt in attempts):
        nearest = min((a for a in attempts if a.holds_weights), key=lambda attempt: attempt.weight_bytes)
        return (
            Verdict.IMPLAUSIBLE,
            f"the {nearest.precision} weights of {statement.model} fit on {where}, but {nearest.lacks}",
            _remedy(attempts, accelerator),
        )
    smallest = min(attempts, key=lambda attempt: attempt.weight_bytes)
    return (
        Verdict.IMPOSSIBLE,
        (
            f"the {smallest.precision} weights of {statement.model} take {smallest.weight_bytes / GB:,.1f} x 10^9 bytes"
            f", but the memory of {where} is only {smallest.memory_bytes / GB:,.1f} x 10^9 bytes"
        ),
        _remedy(attempts, accelerator),
    )


def _judge_does_not_fit(
    statement: FitStatement, accelerator: Accelerator, attempts: list[FitAttempt]
) -> tuple[Verdict, str, str | None]:
    where = _where(statement, accelerator)
    fitting = [attempt for attempt in attempts if attempt.fits]
    if not fitting:
        sure = all(attempt.certain for attempt in attempts)
        return Verdict.CONFIRMED if sure else Verdict.PLAUSIBLE, f"{statement.model} does not fit on {where}", None
    formats = " or ".join(attempt.precision for attempt in fitting)
    if len(fitting) < len(attempts):
        return Verdict.PLAUSIBLE, f"on {where} {statement.model} fits only in {formats}", None
    sure = all(attempt.certain for attempt in fitting)
    verdict = Verdict.CONTRADICTED if sure else Verdict.PLAUSIBLE
    return (
        verdict,
        f"{statement.model} fits on {where} in {formats}, with room for {_tokens(fitting)} tokens of KV cache",
        f"it said that {statement.model} fits",
    )


def _tokens(fitting: list[FitAttempt]) -> str:
    rooms = [_room(attempt.best) for attempt in fitting if attempt.best is not None]
    return f"{min(rooms):,}"


def _remedy(attempts: list[FitAttempt], accelerator: Accelerator) -> str | None:
    best = attempts[0].best
    if best is None:
        return None
    if attempts[0].requests > 1:
        return "there were fewer users, shorter contexts or more devices"
    fewest = minimum_devices(best.deployment, best.context_tokens)
    if fewest is None:
        return None
    return f"it named {fewest.deployment.parallelism.devices} x {accelerator.id} for {attempts[0].precision} weights"


def _audit_fewest(statement: FitStatement, model: ModelSpec, accelerator: Accelerator) -> Judgement:
    """Judge a claim about the minimum number of devices, for each weight format that the claim may mean."""
    amount = statement.fewest
    if amount is None:
        raise ValueError("the claim states no minimum number of devices")
    context = statement.context_tokens or SHORT_CONTEXT
    found: dict[str, int] = {}
    usual: dict[str, int] = {}
    lines = []
    for precision in possible_formats(statement.precision):
        held = in_format(model, precision)
        by_bytes = held.weight_bytes / accelerator.memory.hbm_bytes
        lines.append(
            working_line(
                f"{plainly(round(held.weight_bytes / GB, 1))} / {plainly(round(accelerator.memory.hbm_bytes / GB, 1))}",
                round(held.weight_bytes / GB, 1) / round(accelerator.memory.hbm_bytes / GB, 1),
                f"{precision} weights / memory of one device, both in 10^9 bytes",
            )
        )
        count = next((n for n in range(max(1, int(by_bytes)), 65) if _fits_on(held, accelerator, n, context)), None)
        if count is not None:
            found[precision] = count
            usual[precision] = _as_split(held, accelerator, count, context)
    phrases = [f"{count} {_minimum_phrase(name, count, usual[name])}" for name, count in found.items()]
    said = ", ".join(phrases) or "more than 64"
    needs = f"the minimum number of {accelerator.name} for {model.name} is {said}"
    hit = [name for name, count in found.items() if amount.meets(count) or amount.meets(usual[name])]
    sources = (
        citation(accelerator, accelerator.source_of("memory.hbm_bytes")),
        Cited(title=f"config.json of {model.name}"),
    )
    if hit:
        sure = len(hit) == len(found) == 1 and found == usual
        verdict = Verdict.CONFIRMED if sure else Verdict.PLAUSIBLE
        return Judgement(
            verdict=verdict,
            reason=needs,
            workings=tuple(lines),
            sources=sources,
        )
    few = min(held.weight_bytes for held in (in_format(model, p) for p in possible_formats(statement.precision)))
    verdict = Verdict.IMPOSSIBLE if few > amount.high * accelerator.memory.hbm_bytes else Verdict.CONTRADICTED
    return Judgement(
        verdict=verdict,
        reason=f"{needs}, not {amount.written}",
        workings=tuple(lines),
        sources=sources,
        true_if=f"it said {said}",
    )


def _as_split(model: ModelSpec, accelerator: Accelerator, count: int, context_tokens: int) -> int:
    """Return the minimum number of devices of a usual split.

    A usual split uses 2, 4 or 8 devices of a node, or whole nodes.
    """
    for placed in placements(model, accelerator, count):
        fewest = minimum_devices(placed, context_tokens)
        return fewest.deployment.parallelism.devices if fewest is not None else count
    return count


def _minimum_phrase(precision: str, count: int, usual: int) -> str:
    """Return the weight format of a minimum number of devices.

    If a usual split needs more devices than the minimum, the text names that number too.
    """
    return f"in {precision}" + ("" if usual == count else f" ({usual} if engines split it evenly)")


def _fits_on(model: ModelSpec, accelerator: Accelerator, devices: int, context_tokens: int) -> bool:
    return any(fit(placed, context_tokens).fits for placed in placements(model, accelerator, devices))
