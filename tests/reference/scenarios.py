"""What should two simulators be compared on? Random work of every kind an engine meets, the same for the same seed."""

import math
from collections import Counter
from dataclasses import dataclass
from random import Random

from reference.engine import ReferenceCost, ReferenceRequest, ReferenceSettings

KINDS = ("light", "busy", "saturated", "pressure", "shared", "chunked", "conversations", "closed", "closed_shared")
BLOCK_TOKENS = (1, 16, 32, 64)

# How many mean requests the cache can hold, and the load as a multiple of what the engine can do; from, to.
_REQUESTS_HELD = {
    "pressure": (1.5, 5.0),
    "shared": (2.0, 8.0),
    "chunked": (2.0, 10.0),
    "conversations": (2.0, 12.0),
    "closed": (2.0, 20.0),
    "closed_shared": (2.0, 8.0),
}
_LOAD = {"light": (0.05, 0.4), "saturated": (1.3, 4.0), "pressure": (0.8, 3.0)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One run: an engine, its speed and its traffic. A path names whole segments; ids count from zero."""

    kind: str
    seed: int
    settings: ReferenceSettings
    cost: ReferenceCost
    requests: tuple[ReferenceRequest, ...]
    segment_tokens: tuple[int, ...]
    users: int | None


@dataclass(frozen=True, slots=True)
class _Prompt:
    """A request without its time."""

    inputs: int
    outputs: int
    path: tuple[int, ...] = ()
    own: int = -1
    wave: int = 0


@dataclass(frozen=True, slots=True)
class _Traffic:
    prompts: list[_Prompt]
    segment_tokens: list[int]


def random_scenario(seed: int) -> Scenario:
    """The kind and the block size take turns with the seed, everything else is drawn from it."""
    rng = Random(seed)
    kind = KINDS[seed % len(KINDS)]
    block_tokens = BLOCK_TOKENS[seed // len(KINDS) % len(BLOCK_TOKENS)]
    # Where a block is one token, short requests keep the number of blocks and so the reference's time in bounds.
    scale = 0.25 if block_tokens == 1 else 1.0
    if kind in {"shared", "closed_shared"}:
        traffic = _shared(rng, scale)
    elif kind == "conversations":
        traffic = _conversations(rng, scale)
    else:
        traffic = _chunked(rng, scale) if kind == "chunked" else _unrelated(rng, scale)
    settings = _settings(rng, kind, block_tokens, traffic.prompts)
    cost = _cost(rng, traffic.prompts)
    users = rng.choice((1, 2, 5, 12, 40)) if kind.startswith("closed") else None
    arrivals = [0.0] * len(traffic.prompts) if users else _arrivals(rng, kind, settings, cost, traffic.prompts)
    return Scenario(
        kind=kind,
        seed=seed,
        settings=settings,
        cost=cost,
        requests=_requests(arrivals, traffic),
        segment_tokens=tuple(traffic.segment_tokens),
        users=users,
    )


def _length(rng: Random, median: float, spread: float, low: int, high: float) -> int:
    return max(low, min(round(rng.lognormvariate(math.log(median), spread)), round(high)))


def _unrelated(rng: Random, scale: float) -> _Traffic:
    median, outputs = scale * rng.choice((30, 120, 300)), scale * rng.choice((8, 40, 120))
    prompts = [
        _Prompt(_length(rng, median, 0.8, 1, 1200 * scale), _length(rng, outputs, 0.7, 1, 400 * scale))
        # Fewer where answers are long: one request at a time is one step per token.
        for _ in range(rng.randint(50, round(min(240, 8000 / outputs))))
    ]
    return _Traffic(prompts, [])


def _chunked(rng: Random, scale: float) -> _Traffic:
    prompts = [
        _Prompt(_length(rng, 400 * scale, 0.6, 1, 1500 * scale), _length(rng, 15 * scale, 0.8, 1, 80 * scale))
        for _ in range(rng.randint(50, 90))
    ]
    return _Traffic(prompts, [])


def _shared(rng: Random, scale: float) -> _Traffic:
    """System prompts, documents behind them, and questions; some questions are asked twice word for word."""
    systems = rng.randint(1, 4)
    documents = rng.randint(0, 6)
    segment_tokens = [_length(rng, 150 * scale, 0.6, 1, 500 * scale) for _ in range(systems * (1 + documents))]
    prompts = []
    for _ in range(rng.randint(100, 300)):
        system = min(int(rng.expovariate(1.0)), systems - 1)
        path: tuple[int, ...] = (system,)
        if documents and rng.random() < 0.7:
            path += (systems + system * documents + rng.randrange(documents),)
        question = 0 if rng.random() < 0.1 else _length(rng, 40 * scale, 0.8, 1, 300 * scale)
        inputs = sum(segment_tokens[segment] for segment in path) + question
        prompts.append(_Prompt(inputs, _length(rng, 30 * scale, 0.8, 1, 200 * scale), path))
    return _Traffic(prompts, segment_tokens)


def _conversations(rng: Random, scale: float) -> _Traffic:
    """Turns whose prompt is all that was said before, and something new; half begin with the same system prompt."""
    segment_tokens = [_length(rng, 80 * scale, 0.5, 1, 300 * scale)]
    prompts = []
    for _ in range(rng.randint(25, 60)):
        path: tuple[int, ...] = (0,) if rng.random() < 0.5 else ()
        turns = rng.randint(1, 6)
        for turn in range(turns):
            before = sum(segment_tokens[segment] for segment in path)
            said = _length(rng, 40 * scale, 0.8, 1, 300 * scale)
            outputs = _length(rng, 40 * scale, 0.7, 1, 200 * scale)
            own = len(segment_tokens) if turn < turns - 1 else -1
            prompts.append(_Prompt(before + said, outputs, path, own, turn))
            if own >= 0:
                segment_tokens.append(said + outputs)
                path += (own,)
    # A later turn comes later: first all first turns, mixed, then all second ones.
    prompts.sort(key=lambda prompt: prompt.wave)
    return _Traffic(prompts, segment_tokens)


def _settings(rng: Random, kind: str, block_tokens: int, prompts: list[_Prompt]) -> ReferenceSettings:
    seats = rng.choice((4, 8, 16, 32))
    budget = rng.choice((256, 512, 2048))
    if kind == "chunked":
        seats = rng.choice((1, 4, 8))
        budget = rng.choice((8, 16, 48, 96))
    needed = [math.ceil((prompt.inputs + prompt.outputs - 1) / block_tokens) for prompt in prompts]
    mean = sum(needed) / len(needed)
    low, high = _REQUESTS_HELD.get(kind, (4, 25))
    blocks = max(*needed, round(mean * rng.uniform(low, high)))
    return ReferenceSettings(
        max_num_batched_tokens=max(budget, seats),
        max_num_seqs=seats,
        block_tokens=block_tokens,
        num_blocks=blocks,
        prefix_caching=kind in {"shared", "closed_shared", "conversations"} or rng.random() < 0.7,
    )


def _cost(rng: Random, prompts: list[_Prompt]) -> ReferenceCost:
    """Steps of 5 to 50 ms: mostly a fixed part, then tokens, experts, contexts; a third of the models have windows."""
    context = sum(prompt.inputs + prompt.outputs / 2 for prompt in prompts) / len(prompts)
    limits: tuple[float, ...] = (math.inf,)
    if rng.random() < 0.35:
        limits = rng.choice(((float(round(context / 3)) + 1,), (math.inf, float(round(context / 4)) + 1)))
    experts = rng.random() < 0.35
    step_s = rng.uniform(0.004, 0.02)
    bent = Random(step_s)  # draws of its own, so that all else of a scenario stays as it is
    return ReferenceCost(
        step_s=step_s,
        decode_s=rng.uniform(2e-5, 2e-4),
        prefill_token_s=rng.uniform(5e-6, 4e-5),
        expert_s=rng.uniform(0.005, 0.02) if experts else 0.0,
        expert_miss=rng.uniform(0.9, 0.995) if experts else 1.0,
        limits=limits,
        context_s=tuple(rng.uniform(0.05e-3, 0.5e-3) / context for _ in limits),
        pair_s=tuple(rng.uniform(0.2e-3, 2e-3) / context**2 for _ in limits),
        batch_factors=tuple(bent.uniform(0.8, 1.2) for _ in range(bent.choice((0, 0, 1, 4)))),
    )


def _arrivals(
    rng: Random, kind: str, settings: ReferenceSettings, cost: ReferenceCost, prompts: list[_Prompt]
) -> list[float]:
    """Arrivals as a multiple of what the engine can do; bursty or even, and sometimes several at one instant."""
    inputs = sum(prompt.inputs for prompt in prompts) / len(prompts)
    outputs = sum(prompt.outputs for prompt in prompts) / len(prompts)
    fit = settings.num_blocks * settings.block_tokens / (inputs + outputs / 2)
    batch = max(1.0, min(settings.max_num_seqs, fit))
    step_s = cost.step_s + cost.expert_s + batch * cost.decode_s
    prefill_steps = inputs / settings.max_num_batched_tokens
    request_s = outputs / batch * step_s + inputs * cost.prefill_token_s + prefill_steps * cost.step_s
    mean_gap_s = request_s / rng.uniform(*_LOAD.get(kind, (0.4, 1.3)))
    shape = rng.choice((0.25, 1.0, 1.0, 4.0))
    tick_s = rng.choice((0.0, 0.0, 3 * mean_gap_s))
    now_s, arrivals = 0.0, []
    for _ in prompts:
        now_s += rng.gammavariate(shape, mean_gap_s / shape)
        arrivals.append(math.floor(now_s / tick_s) * tick_s if tick_s else now_s)
    return arrivals


def _requests(arrivals: list[float], traffic: _Traffic) -> tuple[ReferenceRequest, ...]:
    """Segments that only one request sees are its own: they leave the path's end."""
    seen = Counter(segment for prompt in traffic.prompts for segment in {*prompt.path, prompt.own})
    requests = []
    for arrival_s, prompt in zip(arrivals, traffic.prompts, strict=True):
        path = prompt.path
        while path and prompt.own < 0 and seen[path[-1]] == 1:
            path = path[:-1]
        pairs = tuple((segment, traffic.segment_tokens[segment]) for segment in path)
        requests.append(
            ReferenceRequest(
                arrival_s=arrival_s,
                input_tokens=prompt.inputs,
                output_tokens=prompt.outputs,
                path=pairs,
                own=prompt.own,
            )
        )
    return tuple(requests)
