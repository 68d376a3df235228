"""Renders a model: its size, its bytes per component, and its KV cache per kind of layer."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.checkpoint import CrossCheck
from penstock.model import CacheDtype, ModelSpec
from penstock.report.drawing.json_document import build
from penstock.report.drawing.plain_json import plain, plain_fields
from penstock.report.model_heading import ModelDocument
from penstock.units import GIB, format_gib, format_params

_CACHE_CHOICES = (CacheDtype.BF16, CacheDtype.FP8)


def inspect_document(model: ModelSpec, source: str, check: CrossCheck | None) -> dict[str, object]:
    """Return the document that `inspect --json` prints."""
    return {
        "schema": "penstock.inspect/1",
        **build(ModelDocument, model),
        "source": source,
        "hidden_size": model.hidden_size,
        "vocab_size": model.vocab_size,
        "layers": len(model.layers),
        "experts": plain(model.experts),
        "params_by_part": plain(model.params_by_part),
        "cache_bytes_per_token_by_kind": {
            dtype.value: plain(model.cache_bytes_by_kind(dtype)) for dtype in _CACHE_CHOICES
        },
        "cross_check": None
        if check is None
        else {**plain_fields(check), "agrees": check.agrees, "difference_fraction": check.difference_fraction},
    }


def render_model(model: ModelSpec, source: str, check: CrossCheck | None) -> RenderableType:
    """Draw the model."""
    size = f"{format_params(model.total_params)} parameters"
    if model.experts is not None:
        experts = model.experts
        size += f", {format_params(model.active_params)} active ({experts.per_token} of {experts.routed} experts"
        size += f" + {experts.shared} shared)" if experts.shared else ")"
    title = Text.assemble((model.name, "bold"), f"  {model.architecture}, {size}")
    limit = f"{model.max_context_tokens:,} tokens" if model.max_context_tokens else "not stated"
    facts = Text(
        f"{len(model.layers)} layers, hidden {model.hidden_size:,}, vocabulary {model.vocab_size:,}, context {limit}\n"
        f"quantisation: {model.quantisation}; KV cache `auto` is {model.cache_dtype}; from",
        style="dim",
    )
    # Users copy the source path or URL, so it is not wrapped and may exceed the terminal's width.
    origin = Text(f"  {source}\n", style="dim", no_wrap=True, overflow="ignore")
    pieces: list[RenderableType] = [title, facts, origin, _parts(model), Text(), _caches(model)]
    pieces += [Text(f"Note: {note}", style="yellow") for note in model.notes]
    if check is not None:
        pieces += [Text(), _check(check)]
    return Group(*pieces)


def _parts(model: ModelSpec) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("part")
    for name in ("parameters", "GiB", "stored as"):
        table.add_column(name, justify="left" if name == "stored as" else "right")
    for part, params in sorted(model.params_by_part.items(), key=lambda item: -item[1]):
        held = [weight for weight in model.weights if weight.part is part]
        formats = sorted({weight.format.name for weight in held})
        stored = sum(weight.stored_bytes for weight in held)
        table.add_row(part.value, format_params(params), format_gib(stored), " + ".join(formats))
    return table


def _caches(model: ModelSpec) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("layers")
    table.add_column("kind", no_wrap=True)
    for dtype in _CACHE_CHOICES:
        table.add_column(f"bytes/token {dtype}", justify="right")
    table.add_column("context", justify="right")
    table.add_column("bytes/sequence", justify="right")
    for kind, count in model.layer_kinds.items():
        mixers = [layer.mixer for layer in model.layers if layer.mixer is not None and layer.mixer.kind == kind]
        per_token = [f"{model.cache_bytes_by_kind(dtype)[kind]:,.0f}" for dtype in _CACHE_CHOICES]
        window = mixers[0].remembered_tokens(2**30)
        remembers = "state" if window == 0 else "all" if window == 2**30 else f"{window:,} tokens"
        state = sum(mixer.bytes_per_sequence(model.cache_dtype, 1) for mixer in mixers)
        table.add_row(str(count), kind, *per_token, remembers, f"{state:,}" if state else "-")
    totals = [f"{model.cache_bytes_per_token(dtype):,.0f}" for dtype in _CACHE_CHOICES]
    table.add_row("", Text("total", style="bold"), *totals, "", f"{model.state_bytes_per_sequence():,}")
    return table


def _check(check: CrossCheck) -> Text:
    verdict = "agree" if check.agrees else "DO NOT agree"
    text = Text(f"stored tensors and config {verdict}", style="bold green" if check.agrees else "bold red")
    text.append(
        f": {check.stored_bytes / GIB:,.2f} GiB stored, {check.expected_bytes / GIB:,.2f} expected "
        f"({check.difference_fraction:+.2%})",
        style="default not bold",
    )
    for label, names in (
        ("wrong shape", check.wrong_shapes),
        ("not stored", check.missing),
        ("unexpected", check.unexpected),
    ):
        if names:
            text.append(f"\n  {label}: {', '.join(names[:3])}{' ...' if len(names) > 3 else ''}", style="dim not bold")
    return text
