"""Compares what `fit`, `predict`, `preflight` and `simulate` say of one deployment."""

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from agree.comparison import Comparison, apart
from agree.doors import Told, accelerator, ask
from agree.situations import Situation

FIGURES = {"ttft_s": "first token", "tpot_s": "time per token", "output_tokens_per_s": "tokens/s"}
_WAVES = 10
"""Requests of each user of the closed loop: all users start at once."""


def compare_speeds(at: Situation) -> Iterator[Comparison]:
    """Yield every comparison of a situation."""
    predicted = predict(at)
    simulated = simulate(at)
    yield from _runs(at, predicted, simulated)
    if not (predicted.fits and simulated.fits):
        return
    yield from _loops(predicted, simulated)
    yield from _roofline(at, predicted)
    yield from _rate_of_times(at, predicted)
    yield from _ranks(at)
    yield from _jumps(at)


def compare_defaults(at: Situation) -> Iterator[Comparison]:
    """Yield, for each default that an answer prints, how far stating it moves the answer."""
    for door, told, stated in (
        ("predict", predict(at), ("engine", "precision", "kv", "dp")),
        ("simulate", simulate(at), ("engine", "precision", "kv", "dp", "max_num_seqs", "max_num_batched_tokens")),
        ("fit", fit(at), ("engine", "engine_version", "kv", "tp", "memory_fraction", "batched_tokens", "sequences")),
    ):
        if not told.fits:
            continue
        printed = _printed(at, told)
        for option in stated:
            if printed.get(option) is None:
                continue
            again = ASKED[door](at, **{option: printed[option]})
            gap = max((apart(now, then) for now, then in _figures(told, again)), default=0.0) if again.fits else 99.0
            said = f"{option}={printed[option]} stated: {_text(told)}, then {_text(again)}"
            yield Comparison(f"stated default: {door}", gap, said, (told.command, again.command))


def predict(at: Situation, **more: object) -> Told:
    """Ask `predict` about a closed loop."""
    given: dict[str, object] = {"concurrency": at.users} | at.setup() | at.lengths() | more
    return ask("predict", **given)


def simulate(at: Situation, **more: object) -> Told:
    """Ask `simulate` about the same closed loop."""
    given: dict[str, object] = {"users": at.users} | at.setup() | at.lengths() | more
    return ask("simulate", requests=_WAVES * int(str(given["users"])), **given)


def fit(at: Situation, **more: object) -> Told:
    """Ask `fit` about requests of these lengths."""
    return ask("fit", **(at.setup() | {"context": at.input_tokens + at.output_tokens} | more))


ASKED = {"predict": predict, "simulate": simulate, "fit": fit}


def simulated_mean(told: Told, figure: str) -> float:
    """Return a figure of a simulated loop: the mean over its requests, as `predict` defines it."""
    run = told.document["deployments"][0]
    return float(run[figure] if figure == "output_tokens_per_s" else run["latency"][figure]["mean"])


def _runs(at: Situation, predicted: Told, simulated: Told) -> Iterator[Comparison]:
    """Compare who says that the deployment runs. Only a checkpoint has a preflight."""
    fitted = fit(at)
    context = at.input_tokens + at.output_tokens
    asked = {"fit": fitted, "predict": predicted, "simulate": simulated}
    if at.precision is None:
        asked["preflight"] = ask("preflight", model=at.model, on=at.setup()["on"], context=context)
    for one, other in (
        ("predict", "fit"),
        ("simulate", "fit"),
        ("predict", "simulate"),
        ("preflight", "fit"),
        ("predict", "preflight"),
    ):
        if one in asked and other in asked:
            yield _same_verdict(one, asked[one], other, asked[other])
    if at.precision is None and asked["preflight"].fits:
        yield from _launch_speed(at, asked["preflight"])


def _same_verdict(one: str, left: Told, other: str, right: Told) -> Comparison:
    told = f"{one} {_verdict(left)}, {other} {_verdict(right)}"
    return Comparison(f"runs: {one} / {other}", float(left.fits != right.fits), told, (left.command, right.command))


def _verdict(told: Told) -> str:
    if told.refusal:
        return f"refuses ({told.refusal[:60]})"
    if not told.fits:
        return "says no"
    return f"says yes ({_text(told)})"


def _launch_speed(at: Situation, launch: Told) -> Iterator[Comparison]:
    """Compare the speed that `preflight` gives its launch with the prediction of the same load."""
    rate = launch.row.get("output_tokens_per_s")
    told = ask(
        "predict",
        model=at.model,
        on=at.setup()["on"],
        engine="vllm",
        concurrency=32,
        input_tokens=1024,
        output_tokens=1024,
    )
    if rate is None or not told.fits:
        return
    other = float(told.row["output_tokens_per_s"])
    said = f"preflight {rate:,.0f} tok/s, predict {other:,.0f} tok/s (vLLM, 32 users, 1,024/1,024)"
    yield Comparison("tokens/s: preflight / predict", apart(rate, other), said, (launch.command, told.command))


def _loops(predicted: Told, simulated: Told) -> Iterator[Comparison]:
    commands = (predicted.command, simulated.command)
    for figure, name in FIGURES.items():
        ours, theirs = predicted.row[figure], simulated_mean(simulated, figure)
        low, high = predicted.row[f"{figure}_p10"], predicted.row[f"{figure}_p90"]
        told = f"predict {_figure(figure, ours)} ({_figure(figure, low)} to {_figure(figure, high)}), "
        told += f"simulate {_figure(figure, theirs)}"
        yield Comparison(f"{name}: predict / simulate", apart(ours, theirs), told, commands)
        outside = max(low / theirs, theirs / high, 1.0) - 1 if theirs > 0 else 99.0
        yield Comparison(f"{name} in P10-P90: predict / simulate", outside, told, commands)


def _roofline(at: Situation, predicted: Told) -> Iterator[Comparison]:
    """Compare the first token with the prompts' roofline: the first wave served one by one, the others alone."""
    prompt_s = _prompt_s(at)
    running = min(at.users, float(predicted.row["running"]))
    wave = (running + 1) / 2
    least_s = prompt_s * (wave / _WAVES + 1 - 1 / _WAVES)
    for end, name in (
        ("", "first token below its roofline: predict"),
        ("_p10", "first token, P10, below its roofline: predict"),
    ):
        said_s = float(predicted.row[f"ttft_s{end}"])
        told = f"{said_s * 1e3:,.0f} ms, {at.users} prompts at 100% of peak {least_s * 1e3:,.0f} ms"
        yield Comparison(name, max(0.0, least_s / said_s - 1), told, (predicted.command,))


def _prompt_s(at: Situation) -> float:
    """Return the seconds of one prompt at the peak of the data sheet, without embeddings and attention."""
    shape = predict(at).document["model"]
    parts = ask("fit", **(at.setup() | {"precision": None})).document["deployments"][0]
    weights = parts["budget"]["weight_bytes_by_part"]
    embedding = sum(weights.get(part, 0) for part in ("embedding", "lm_head")) / 2 * at.devices
    peaks = accelerator(at.accelerator)["accelerator"]["dense_flops_per_s"]
    formats = set(shape["weight_bytes_by_format"])
    wide = formats <= {"bf16", "fp16"}
    names = (
        ("bf16",) if wide else ("bf16", "fp8") if formats <= {"bf16", "fp16", "fp8", "fp32"} else ("bf16", "fp8", "fp4")
    )
    peak = max(peaks.get(name) or 0.0 for name in names) * at.devices
    return float(2 * max(0.0, shape["active_params"] - embedding) * at.input_tokens / peak)


def _rate_of_times(at: Situation, predicted: Told) -> Iterator[Comparison]:
    """A closed loop of N users makes at most N tokens in the time of one token."""
    row = predicted.row
    most = at.users / row["tpot_s"]
    told = f"{row['output_tokens_per_s']:,.0f} tok/s, {at.users} users at {row['tpot_s'] * 1e3:.2f} ms make {most:,.0f}"
    gap = max(0.0, row["output_tokens_per_s"] / most - 1)
    yield Comparison("tokens/s above users per time per token: predict", gap, told, (predicted.command,))


def _ranks(at: Situation) -> Iterator[Comparison]:
    """Compare which of two accelerators is faster. Differences below 5% are no ranking."""
    both = [at.setup(), at.setup(at.rival)]
    predicted = [predict(at, **one) for one in both]
    simulated = [simulate(at, **one) for one in both]
    if not all(told.fits for told in (*predicted, *simulated)):
        return
    for figure, name in FIGURES.items():
        ours = math.log(predicted[0].row[figure] / predicted[1].row[figure])
        theirs = math.log(simulated_mean(simulated[0], figure) / simulated_mean(simulated[1], figure))
        turned = ours * theirs < 0 and min(abs(ours), abs(theirs)) > math.log(1.05)
        told = f"{at.accelerator} over {at.rival}: predict {math.exp(ours):.2f}, simulate {math.exp(theirs):.2f}"
        commands = tuple(one.command for one in (*predicted, *simulated))
        yield Comparison(
            f"faster accelerator by {name}", math.expm1(abs(ours - theirs)) if turned else 0.0, told, commands
        )


def _jumps(at: Situation) -> Iterator[Comparison]:
    """Compare neighbours: one user more, and lengths 1% longer. Growth by that share is no jump."""
    users = sorted({max(1, at.users - 1), at.users, at.users + 1})
    inputs = [at.input_tokens, math.ceil(at.input_tokens * 1.01)]
    outputs = [at.output_tokens, math.ceil(at.output_tokens * 1.01)]
    chains = {
        "a user": [(predict(at, concurrency=count), 1 / count) for count in users],
        "1% of the prompt": [(predict(at, input_tokens=tokens), 0.02) for tokens in inputs],
        "1% of the answer": [(predict(at, output_tokens=tokens), 0.02) for tokens in outputs],
    }
    all_run = _all_run(chains["a user"][-1][0])
    for name, chain in chains.items():
        for (before, growth), (after, _) in pairwise(chain):
            yield _step(before, after, growth, f"jump at {name} more: predict", all_run=all_run)
    more = simulate(at, users=at.users + 1)
    yield _step(simulate(at), more, 1 / at.users, "jump at a user more: simulate", all_run=all_run)


def _all_run(told: Told) -> bool:
    """Return whether memory holds all users. If it does not, one more waits for a whole answer."""
    return told.fits and bool(told.row["running"] >= told.row["concurrency"])


def _step(before: Told, after: Told, growth: float, kind: str, *, all_run: bool) -> Comparison:
    """Return the largest step of a figure beyond its growth."""
    commands = (before.command, after.command)
    if not (before.fits and after.fits):
        return Comparison(kind, 99.0 * (before.fits != after.fits), "one of both does not run", commands)
    figures = [figure for figure in FIGURES if all_run or figure != "ttft_s"]
    pairs = {figure: (_of(before, figure), _of(after, figure)) for figure in figures}
    gaps = {figure: max(0.0, apart(*pair) - growth) for figure, pair in pairs.items()}
    worst = max(gaps, key=lambda figure: gaps[figure])
    old, new = pairs[worst]
    return Comparison(
        kind, gaps[worst], f"{FIGURES[worst]} {_figure(worst, old)}, then {_figure(worst, new)}", commands
    )


def _of(told: Told, figure: str) -> float:
    return simulated_mean(told, figure) if "--users" in told.command else float(told.row[figure])


def _printed(at: Situation, told: Told) -> Mapping[str, Any]:
    """Return the defaults that an answer prints, by option."""
    if told.command.startswith("penstock fit"):
        row, engine = told.row, told.document["deployments"][0]["engine"]
        return {
            "engine": row["engine"],
            "engine_version": row["engine_version"],
            "kv": row["cache_dtype"],
            "tp": told.document["deployments"][0]["parallelism"]["tp"],
            "memory_fraction": engine["memory_fraction"],
            "batched_tokens": engine["max_batched_tokens"],
            "sequences": engine["max_sequences"],
        }
    predicted = predict(at).row
    found = {"engine": told.row["engine"], "kv": predicted["kv_cache"], "dp": 1}
    if at.precision is None and " + " not in predicted["weights"]:
        found["precision"] = predicted["weights"]
    if told.command.startswith("penstock simulate"):
        replica = told.document["deployments"][0]["replica"]
        found |= {"max_num_seqs": replica["max_sequences"], "max_num_batched_tokens": replica["max_batched_tokens"]}
    return found


def _figures(one: Told, other: Told) -> list[tuple[float, float]]:
    if "kv_tokens" in one.row:
        return [(one.row["kv_tokens"], other.row["kv_tokens"])]
    return [(_of(one, figure), _of(other, figure)) for figure in FIGURES]


def _text(told: Told) -> str:
    if told.refusal or not told.fits:
        return told.refusal[:60] or "does not run"
    if "kv_tokens" in told.row:
        return f"{told.row['kv_tokens']:,} KV tokens"
    if "findings" in told.row:
        return "passes"
    parts = [_figure(figure, _of(told, figure)) for figure in ("output_tokens_per_s", "ttft_s", "tpot_s")]
    return f"{told.row['engine']}: {parts[0]}, first token {parts[1]}, {parts[2]} a token"


def _figure(figure: str, value: float) -> str:
    return f"{value:,.0f} tok/s" if figure == "output_tokens_per_s" else f"{value * 1e3:,.4g} ms"
