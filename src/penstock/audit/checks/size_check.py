"""Checks claims about sizes: parameters, weights, KV cache and the memory left."""

from penstock.audit.checks.fit_check import SHORT_CONTEXT
from penstock.audit.claims.memory_claims import SizeStatement
from penstock.audit.evidence.weight_formats import in_format, possible_formats
from penstock.audit.judgement import Cited, Judgement, Verdict, Working, plainly, working_line
from penstock.audit.reference_library import Library
from penstock.model import CacheDtype, ModelSpec
from penstock.units import GB, GIB


def audit_size(statement: SizeStatement, library: Library) -> Judgement:
    """Judge a size claim by the model's config. If the claim states no weight format, try every usual weight format."""
    amount, found = statement.amount, library.model_of(statement.model)
    source = Cited(title=f"config.json of {found.name}")
    held = [(in_format(found, precision), precision) for precision in _possible_formats(statement)]
    tries = [_size(statement, model, precision, library) for model, precision in held]
    if statement.sized == "left":
        tries += [_free_memory(statement, model, precision, library, printed=False) for model, precision in held]
    for value, line, name in tries:
        for reading, unit in _units(value, amount.measure):
            if amount.meets(reading):
                sure = len(tries) == 1 or (value, line, name) == tries[0]
                return Judgement(
                    verdict=Verdict.CONFIRMED if sure else Verdict.PLAUSIBLE,
                    reason=f"{name} {_size_text(value, amount.measure)}{unit}",
                    workings=(line,),
                    sources=(source,),
                )
    value, line, name = tries[0]
    near = any(amount.nearly(reading) for reading, _ in _units(value, amount.measure))
    active = _active(statement, found)
    return Judgement(
        verdict=Verdict.PLAUSIBLE if near or active else Verdict.CONTRADICTED,
        reason=f"{name} {_size_text(value, amount.measure)}"
        + (f"; {amount.noun_phrase} is near this figure" if near else f", not {amount.written}")
        + active,
        workings=(line,),
        sources=(source,),
        true_if=None if near else f"it said {_size_text(value, amount.measure)}",
    )


def _possible_formats(statement: SizeStatement) -> tuple[str | None, ...]:
    if statement.precision is None and statement.sized in ("weights", "left"):
        return (None, *possible_formats(None))
    return (statement.precision,)


def _units(value: float, measure: str) -> list[tuple[float, str]]:
    """Return each value that a figure may mean, with the text of its unit.

    A figure in GB may also mean GiB.
    """
    return [(value, "")] + ([(value * GB / GIB, f", or {value / GIB:,.1f} GiB")] if measure == "bytes" else [])


def _active(statement: SizeStatement, model: ModelSpec) -> str:
    """Return a note if the claimed figure is the number of active parameters per token, else an empty string."""
    used = model.active_params
    if statement.sized != "params" or model.experts is None or not statement.amount.nearly(float(used)):
        return ""
    return f"; the number of parameters that one token uses is {used / GB:,.4g} billion"


def _size_text(value: float, measure: str) -> str:
    if measure != "bytes":
        return f"{value / GB:,.4g} billion" if value >= GB else f"{value:,.4g}"
    return f"{value / GB:,.1f} x 10^9 bytes" if value >= GB else f"{value / 1024:,.4g} KiB"


def _size(
    statement: SizeStatement, model: ModelSpec, precision: str | None, library: Library
) -> tuple[float, Working, str]:
    name = model.name + (f" in {precision}" if precision else "")
    if statement.sized == "params":
        total = float(model.total_params)
        return (
            total,
            working_line(f"{plainly(total / GB)} * 1", total / GB, "number of parameters in config.json, in 10^9"),
            (f"the number of parameters of {name} is"),
        )
    weights = float(model.weight_bytes)
    if statement.sized == "weights":
        each = round(8 * weights / model.total_params, 3)
        params = round(model.total_params / GB, 3)
        line = working_line(
            f"{plainly(params)} * {plainly(each)} / 8",
            params * each / 8,
            "parameters * bits per weight / 8, in 10^9 bytes",
        )
        return weights, line, f"the weights of {name} take"
    context = statement.context_tokens or SHORT_CONTEXT
    per_token = model.cache_bytes_per_token(CacheDtype.BF16)
    if statement.sized == "cache":
        value = per_token * context * statement.requests
        line = working_line(
            f"{plainly(per_token)} * {context} * {statement.requests} / {GB}",
            value / GB,
            "bytes per token * tokens * requests, in 10^9 bytes",
        )
        return value, line, f"the KV cache of {statement.requests} x {context:,} tokens of {name} takes"
    return _free_memory(statement, model, precision, library, printed=True)


def _free_memory(
    statement: SizeStatement, model: ModelSpec, precision: str | None, library: Library, *, printed: bool
) -> tuple[float, Working, str]:
    """Compute the memory that the weights leave free, from nominal GB (`printed`) or from physical bytes.

    A device of nominal 80 GB has 85.9 x 10^9 physical bytes.
    """
    name = model.name + (f" in {precision}" if precision else "")
    accelerator = library.accelerator_of(statement.accelerator or "")
    each_gb = accelerator.memory.nominal_gb if printed else round(accelerator.memory.hbm_bytes / GB, 1)
    memory_gb, weights_gb = statement.devices * each_gb, round(model.weight_bytes / GB, 1)
    line = working_line(
        f"{plainly(memory_gb)} - {plainly(weights_gb)}",
        memory_gb - weights_gb,
        "nominal memory - weights, in GB" if printed else "physical memory - weights, in 10^9 bytes",
    )
    where = f"{statement.devices} x {accelerator.name}"
    return (memory_gb - weights_gb) * GB, line, f"the memory of {where} that is left after the weights of {name} is"
