"""Judges what data sheets, configs and arithmetic decide: specs, their ratios, sizes, fits, and bounds of speed."""

from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Final, NamedTuple

from penstock.audit.claim import Amount, Claim, Judgement, Setup, Verdict, figure
from penstock.catalog import load_accelerator
from penstock.catalog.accelerator import Accelerator, Precision
from penstock.fleet import Deployment, Parallelism, engine_defaults
from penstock.model import CacheDtype, ModelSpec
from penstock.model.model_spec import model_as_measured
from penstock.model.weight import FORMATS, FP16, INT8_CHANNEL
from penstock.performance.memory.budget import fit
from penstock.performance.memory.sharding import refusal
from penstock.performance.shipped.shipped_runs import model_of
from penstock.units import GB, GIB, TERA

_ALIKE: Final = {"fp16": "bf16", "int8": "fp8", "nvfp4": "mxfp4", "fp4": "mxfp4"}
_FLOPS: Final = ("fp16", "fp8", "fp4", "fp6", "int8", "bf16", "tf32", "fp32", "fp64")
_PACKAGES: Final = {"gb200": "superchip", "gb300": "superchip", "mi250x": "package", "h100_nvl": "pair"}
"""Accelerators of which two are sold, and listed in data sheets, as one product."""
_SHORT_CONTEXT: Final = 2048
_MAX_DRAFTS: Final = 4.0
"""Tokens per step and request that speculative decoding may yield; shipped rows accept fewer than three drafts."""
_MAX_REQUESTS: Final = 65536.0
_QUANTITIES: Final = {
    "memory": (GB, "GB", "memory.hbm_bytes"),
    "bandwidth": (TERA, "TB/s", "memory.hbm_bytes_per_s"),
    "link": (GB, "GB/s", "link"),
    "flops": (TERA, "TFLOPS", "dense_flops_per_s.bf16"),
    "tdp": (1.0, "W", "tdp_watts"),
    "compute_units": (1.0, "compute units", "compute_units"),
}
"""Display unit of each quantity, and the field whose source is cited."""
_BYTES: Final = {"fp32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0}


class Reading(NamedTuple):
    """One value that a claimed figure may mean. It is plain if it is the literal meaning of the words."""

    name: str
    value: float
    plain: bool = True


class Bound(NamedTuple):
    """Physical bound of one weight format on the devices, with its arithmetic."""

    fits: bool
    by_memory: float
    by_peak: float
    tpot_s: float
    line: str


class _Held(NamedTuple):
    """A model in one weight format."""

    spec: ModelSpec
    weight_bytes: float
    active: float
    read_bytes: float
    """Bytes of the weights that one token reads: of a mixture, only its experts."""
    cache_bytes: float
    narrowest_bits: float


@cache
def held(model: str, precision: str | None) -> _Held:
    """Return a model as stored in a weight format, or as released."""
    whole = model_of(model)
    name = {"fp4": "mxfp4"}.get(precision or "", precision or "")
    spec = whole.stored_as(INT8_CHANNEL if name == "int8" else FP16) if name in {"int8", "fp16"} else whole
    spec = model_as_measured(whole, name) if name in FORMATS else spec
    weights, active = float(spec.weight_bytes), float(whole.active_params)
    bits = min(16.0 if kind == "fp16" else FORMATS[kind].bits if kind in FORMATS else 8.0 for kind in spec.formats)
    read = weights * min(1.0, active / whole.total_params)
    return _Held(spec, weights, active, read, spec.cache_bytes_per_token(CacheDtype.FP8), bits)


def tried_formats(precision: str | None) -> tuple[str | None, ...]:
    """Return the stated format, or else the released one and every usual one."""
    return (precision,) if precision else (None, "fp16", "fp8", "int4")


def alike(precision: str) -> str:
    """Return the name that stands for all formats of the same width and speed."""
    return _ALIKE.get(precision, precision)


def where(setup: Setup) -> str:
    """Name the devices."""
    return f"{setup.devices}x {setup.accelerator}"


def _cited(part: Accelerator, quantity: str) -> tuple[tuple[str, str | None], ...]:
    source = part.source_of(_QUANTITIES[quantity][2])
    return ((f"{part.name}: {source.title or quantity}", source.url),)


def judge_spec(claim: Claim, amount: Amount) -> Judgement:
    """Compare a figure with the data sheet: as written, then as what it is often mistaken for."""
    part = load_accelerator(claim.setup.accelerator or "")
    size, unit, _ = _QUANTITIES[claim.quantity]
    plain = [reading for reading in _readings(claim, part, _times(claim, part)) if reading.plain]
    if not plain and claim.quantity == "flops" and claim.setup.precision:
        known = f"it named {', '.join(part.dense_flops_per_s)}"
        return Judgement(Verdict.CONTRADICTED, f"{part.name} cannot multiply in {claim.setup.precision}", (), known)
    if not plain:
        return Judgement(Verdict.UNDETERMINED, f"the catalog has no {claim.quantity} of {part.name}")
    first, sources = plain[0], _cited(part, claim.quantity)
    hit = next((reading for reading in plain if amount.meets(reading.value)), None)
    near = hit or next((reading for reading in plain if amount.nearly(reading.value)), None) or first
    said = f"{near.name} of {part.name} is {figure(near.value / size)} {unit}"
    ratio = amount.middle / near.value
    line = f"{figure(amount.middle / size)} / {figure(near.value / size)} = {ratio:.3g} (claimed / {near.name})"
    if hit or amount.nearly(near.value):
        return Judgement(Verdict.CONFIRMED if hit else Verdict.PLAUSIBLE, said, (line,), None, sources)
    if claim.basis == "sustained" and amount.high <= first.value:
        return Judgement(Verdict.PLAUSIBLE, f"{said}, and {ratio:.0%} of it may be reached", (line,), None, sources)
    slack = max(0.02, amount.slack_fraction)
    other = next((reading for reading in _others(claim, part) if amount.meets(reading.value, slack)), None)
    if other is None:
        return Judgement(Verdict.CONTRADICTED, said, (line,), f"it said {figure(first.value / size)} {unit}", sources)
    reason = f"{said}; {amount.written} is {other.name}"
    if other.plain:
        return Judgement(Verdict.PLAUSIBLE, reason, (line,), None, sources)
    return Judgement(Verdict.CONTRADICTED, reason, (line,), f"it meant {other.name}", sources)


def _times(claim: Claim, part: Accelerator) -> int:
    if claim.scope == "rack":
        return (part.link.domain_devices if part.link else None) or part.node.devices
    return (claim.setup.devices if claim.setup.counted else part.node.devices) if claim.scope == "node" else 1


def _readings(claim: Claim, part: Accelerator, times: int) -> Iterator[Reading]:
    """Yield what the words may mean, the literal meaning first."""
    of = f" of {times} devices" if times > 1 else ""
    memory, link, quantity = part.memory, part.link, claim.quantity
    if quantity == "memory":
        gib = claim.amount is not None and "ib" in claim.amount.written.lower()
        yield Reading(f"the memory{of}", times * memory.nominal_gb * GB)
        yield Reading(f"the memory{of} in GiB", times * memory.hbm_bytes, gib)
    elif quantity == "bandwidth":
        yield Reading(f"the memory bandwidth{of}", times * memory.hbm_bytes_per_s)
    elif quantity in {"tdp", "compute_units"}:
        value = part.tdp_watts if quantity == "tdp" else part.compute_units
        name = f"the TDP{of}" if quantity == "tdp" else "the number of compute units"
        yield from (Reading(name, times * value) for value in (value,) if value)
    elif quantity == "link" and link is not None:
        rates = {"all peers": link.aggregate_bytes_per_s_one_way, "one peer": link.per_peer_bytes_per_s_one_way}
        for (name, rate), ways in product(rates.items(), ((2, "both ways"), (1, "one way"))):
            if rate is not None:
                yield Reading(f"the link bandwidth to {name}, {ways[1]}{of}", ways[0] * times * rate)
    elif quantity == "flops":
        asked = {"bf16": "fp16"}.get(claim.setup.precision or "", claim.setup.precision)
        for kind, dense in product((asked,) if asked else _FLOPS, (True, False)):
            rate = (part.dense_flops_per_s if dense else part.sparse_flops_per_s or {}).get(Precision(kind))
            if rate is not None:
                name = f"the {'dense' if dense else 'sparse (2:4)'} {kind} rate{of}"
                yield Reading(name, times * rate, dense != (claim.basis == "sparse"))


def _others(claim: Claim, part: Accelerator) -> Iterator[Reading]:
    """Yield what the figure may be mistaken for. A plain one excuses the claim: it is true of another product."""
    times, memory = _times(claim, part), claim.quantity == "memory"
    summed = claim.quantity in {"memory", "bandwidth", "flops"}
    for name, value, plain in _readings(claim, part, times):
        if not plain:
            # A rack's sheet prints only the sparse rate, and memory is counted in GiB as often as in GB.
            excused = memory or (claim.scope == "rack" and claim.basis != "dense")
            yield Reading(name if memory else f"{name}, which no LLM engine reaches", value, excused)
    if summed and claim.scope == "device" and part.id in _PACKAGES:
        yield from (one._replace(name=f"{one.name}, a {_PACKAGES[part.id]}") for one in _readings(claim, part, 2))
    for other in (load_accelerator(ident) for ident in claim.setup.variants if ident != part.id):
        yield from (one._replace(name=f"{one.name} of {other.name}") for one in _readings(claim, other, times))
    for count in {1, part.node.devices, (part.link.domain_devices if part.link else None) or 1} - {times}:
        for name, value, _ in _readings(claim, part, count) if summed else ():
            yield Reading(f"{name} of 1 device" if count == 1 else name, value, plain=False)
    for kind, rate in part.dense_flops_per_s.items() if claim.quantity == "flops" else ():
        yield Reading(f"the dense {kind} rate", times * rate, plain=False)


def judge_spec_ratio(claim: Claim, amount: Amount) -> Judgement:
    """Compare a ratio of two data sheet figures with every pair of their readings."""
    over = claim.over or Setup()
    mine, yours = (load_accelerator(side.accelerator or "") for side in (claim.setup, over))
    size, unit, _ = _QUANTITIES[claim.quantity]
    pairs = [
        (top, bottom)
        for top, bottom in product(_readings(claim, mine, 1), _readings(claim, yours, 1))
        if claim.quantity != "flops" or top.name == bottom.name or claim.setup.precision
    ]
    plain = [pair for pair in pairs if pair[0].plain and pair[1].plain]
    if not plain:
        return Judgement(Verdict.UNDETERMINED, f"the catalog lacks the {claim.quantity} of one of the two")
    sources = _cited(mine, claim.quantity) + _cited(yours, claim.quantity)
    looser = Verdict.PLAUSIBLE if claim.quantity == "memory" else Verdict.CONTRADICTED
    for verdict, chosen, test in (
        (Verdict.CONFIRMED, plain, amount.meets),
        (Verdict.PLAUSIBLE, plain, amount.nearly),
        (looser, pairs, amount.meets),
        (Verdict.CONTRADICTED, plain[:1], lambda _: True),
    ):
        hit = next((pair for pair in chosen if test(pair[0].value / pair[1].value)), None)
        if hit is not None:
            top, bottom = hit
            ratio = f"{figure(top.value / size)} / {figure(bottom.value / size)} = {top.value / bottom.value:.3g}"
            line = f"{ratio} ({top.name} of {mine.name} / of {yours.name}, {unit})"
            true = f"{plain[0][0].value / plain[0][1].value:.3g}"
            said = f"it said {true}x" if verdict.negative else None
            reason = f"the ratio is {true}" if verdict.negative else f"the ratio is {top.value / bottom.value:.3g}"
            return Judgement(verdict, reason, (line,), said, sources)
    raise AssertionError("the last test holds for every pair")


@cache
def _fits(model: str, precision: str | None, accelerator: str, devices: int, context: int) -> bool:
    """Return whether a split of the devices holds weights, engine and one request."""
    part = load_accelerator(accelerator)
    for tp in (count for count in range(devices, 0, -1) if devices % count == 0):
        pp = devices // tp
        engine = engine_defaults("vllm", part, tp=tp, pp=pp)
        spec, split = held(model, precision).spec, Parallelism(tp=tp, pp=pp)
        placed = Deployment(model=spec, accelerator=part, engine=engine, parallelism=split)
        if refusal(placed) is None and fit(placed, context).fits:
            return True
    return False


def room_lines(setup: Setup) -> tuple[str, ...]:
    """Return the arithmetic that compares memory and weights in each format that the claim may mean."""
    memory = setup.devices * load_accelerator(setup.accelerator or "").memory.hbm_bytes / GB
    lines = []
    for name in tried_formats(setup.precision):
        weights = held(setup.model or "", name).weight_bytes / GB
        unit = f"(memory - {name or 'released'} weights, in 10^9 bytes)"
        lines.append(f"{memory:.1f} - {weights:.1f} = {memory - weights:.1f} {unit}")
    return tuple(lines)


def judge_fit(claim: Claim) -> Judgement:
    """Try the model in every weight format that the claim may mean, with room for one request."""
    setup, model, part = claim.setup, claim.setup.model or "", claim.setup.accelerator or ""
    context = min(setup.input_tokens or _SHORT_CONTEXT, model_of(model).max_context_tokens or _SHORT_CONTEXT)
    tried = tried_formats(setup.precision)
    if claim.basis == "least":
        return _fewest(setup)
    fitting = [name for name in tried if _fits(model, name, part, setup.devices, context)]
    names, on = " or ".join(name or "the released format" for name in fitting), where(setup)
    holds = any(held(model, name).weight_bytes <= _memory(setup) for name in tried)
    sources = (*_cited(load_accelerator(part), "memory"), (f"config.json of {model}", None))
    no, true_if = claim.basis == "no", None
    if fitting and fitting[0] == tried[0]:  # what fits as released fits
        verdict, reason = Verdict.CONTRADICTED if no else Verdict.CONFIRMED, f"{model} fits on {on} in {names}"
        true_if = "it said that the model fits" if no else None
    elif fitting:
        verdict, reason = Verdict.PLAUSIBLE, f"{model} fits on {on} only in {names}"
    elif no:
        verdict, reason = Verdict.CONFIRMED, f"{model} does not fit on {on}"
    else:
        verdict, true_if = Verdict.IMPLAUSIBLE if holds else Verdict.IMPOSSIBLE, "there were more devices"
        small = f"the weights of {model} fit on {on}, but no room is left for engine and cache"
        reason = small if holds else f"the weights of {model} are larger than the memory of {on} in every format tried"
    return Judgement(verdict, reason, room_lines(setup), true_if, sources)


def _memory(setup: Setup) -> float:
    return float(setup.devices * load_accelerator(setup.accelerator or "").memory.hbm_bytes)


def _fewest(setup: Setup) -> Judgement:
    model, part = setup.model or "", setup.accelerator or ""
    counts: dict[str, int | None] = {}
    for name in tried_formats(setup.precision):
        first = max(1, int(held(model, name).weight_bytes / load_accelerator(part).memory.hbm_bytes))
        hits = (n for n in range(first, 33) if _fits(model, name, part, n, _SHORT_CONTEXT))
        counts[name or "the released format"] = next(hits, None)
    reason = f"the fewest {part} for {model} are " + ", ".join(f"{n or 'over 32'} in {k}" for k, n in counts.items())
    # Engines split over 2, 4, 8 or 16 devices, though fewer may hold the model.
    even = setup.devices in {2, 4, 8, 16} and all(n is not None and n <= setup.devices for n in counts.values())
    hit = setup.devices in counts.values()
    verdict = (
        Verdict.CONFIRMED if hit and setup.precision else Verdict.PLAUSIBLE if hit or even else Verdict.CONTRADICTED
    )
    return Judgement(verdict, reason, room_lines(setup))


def judge_size(claim: Claim, amount: Amount) -> Judgement:
    """Compare bytes of weights, of cache, or left beside weights with all that the words may mean."""
    setup, whole = claim.setup, model_of(claim.setup.model or "")
    readings: list[tuple[str, float, float]] = []
    for name in tried_formats(setup.precision):
        bare = whole.total_params * _BYTES.get(name or "", 0.5)
        sizes = [held(setup.model or "", name).weight_bytes, *([bare] if name else [])]
        if claim.kind == "left":
            nominal = setup.devices * load_accelerator(setup.accelerator or "").memory.nominal_gb * GB
            sizes = [room - size for room, size in product((nominal, _memory(setup)), sizes)]
        readings.append((name or "as released", min(sizes), max(sizes)))
    if claim.kind == "cache":
        tokens = float(setup.input_tokens or 1) * (setup.concurrency or 1)
        kinds = (CacheDtype.BF16, CacheDtype.FP8)
        readings = [(kind.value, *(2 * [tokens * whole.cache_bytes_per_token(kind)])) for kind in kinds]  # type: ignore[misc]
    what = {"left": "memory left beside weights", "cache": "KV cache", "weights": "weights"}[claim.kind]
    said = "; ".join(f"{name}: {low / GB:.1f} to {high / GB:.1f} GB" for name, low, high in readings)
    hits = [name for name, low, high in readings if amount.overlaps(low, high, max(amount.slack_fraction, 0.02))]
    # A size may be counted in GB or GiB.
    close = [
        name for name, low, high in readings if amount.overlaps(low * GB / GIB, high, max(amount.slack_fraction, 0.1))
    ]
    sure = bool(hits) and (setup.precision is not None or hits[0] == readings[0][0] or claim.kind == "cache")
    verdict = Verdict.CONFIRMED if sure else Verdict.PLAUSIBLE if hits or close else Verdict.CONTRADICTED
    return Judgement(verdict, f"{what} of {setup.model}, {said}", (), None, ((f"config.json of {setup.model}", None),))


def bounds(setup: Setup) -> list[Bound]:
    """Return the bound in every format the claim may mean: weights are read once a step, and none beats the peak."""
    part, found = load_accelerator(setup.accelerator or ""), []
    for name in tried_formats(setup.precision):
        model = held(setup.model or "", name)
        free = max(0.0, _memory(setup) - model.weight_bytes)
        each = model.cache_bytes * max(1.0, (setup.input_tokens or 0) + (setup.output_tokens or 2) / 2)
        running = max(1.0, min(setup.concurrency or _MAX_REQUESTS, free / each if each else _MAX_REQUESTS))
        drafts = 1.0 if setup.drafted is False else _MAX_DRAFTS
        bytes_per_s = setup.devices * part.memory.hbm_bytes_per_s
        step_s = (model.read_bytes + running * each) / bytes_per_s
        bits = {"bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "fp4": 4}
        rates = (
            part.dense_flops_per_s.get(Precision(kind), 0.0) for kind, n in bits.items() if n >= model.narrowest_bits
        )
        peak = setup.devices * max(rates)
        by_memory, by_peak = running * drafts / step_s, peak / (2.0 * model.active)
        line = f"{peak / TERA:,.0f} TFLOPS / {2 * model.active / 1e9:,.1f} GFLOP = {by_peak:,.0f} tok/s (peak / work)"
        if by_memory <= by_peak:
            what = f"requests * tokens a step / reading the {name or 'released'} weights once"
            line = f"{running:,.0f} * {drafts:g} / {step_s * 1e3:.4g} ms = {by_memory:,.0f} tok/s ({what})"
        tpot_s = (model.read_bytes + each) / bytes_per_s / drafts
        found.append(Bound(free > 0, by_memory, by_peak, tpot_s, line))
    return found
