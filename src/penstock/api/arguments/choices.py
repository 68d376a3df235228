"""Parses argument values. Arguments that are already objects of the library are used unchanged."""

from dataclasses import replace
from os import fspath
from typing import TYPE_CHECKING, Final

from penstock.api.options.argument_types import AskedModel, Loads, Targets, Tokens
from penstock.catalog import load_accelerator
from penstock.catalog.accelerator import Accelerator
from penstock.catalog.own_accelerator import find_accelerator
from penstock.checkpoint import open_checkpoint
from penstock.errors import ConfigError, UnknownName, UsageError
from penstock.fleet import Engine, Parallelism
from penstock.fleet.serving_engines import serving_defaults, serving_engine
from penstock.model import CacheDtype, ModelSpec, Part, cache_dtype
from penstock.model.model_spec import model_as_measured
from penstock.model.weight import FORMATS, FP16, MXFP8
from penstock.units import parse_tokens

if TYPE_CHECKING:
    from penstock.api.options.fit_options import FitOptions

MAX_LOADS: Final = 64
"""Maximum number of points of one curve."""


def counted_targets(on: Targets) -> list[tuple[Accelerator, int | None]]:
    """Parse accelerators and their device counts. The count is None if the text gives no count."""
    if isinstance(on, str):
        return [_target(piece.strip(), on) for piece in on.split(",")]
    if isinstance(on, Accelerator):
        return [(on, None)]
    if isinstance(on, tuple) and len(on) == 2 and isinstance(on[1], int):  # accelerator and count
        named, devices = on
        accelerator = find_accelerator(named) if isinstance(named, str) else named
        return [(accelerator, _devices(f"{accelerator.id}:{devices}", str(devices)))]
    found = [target for piece in on for target in counted_targets(piece)]
    if not found:
        raise UsageError("no accelerator is named; use `mi300x` or `mi300x,h100:2`, for example")
    return found


def _target(piece: str, text: str) -> tuple[Accelerator, int | None]:
    name, typed = _split_count(piece)
    if not name:
        raise UsageError(f"'{text}' names no accelerator; use `--on mi300x` or `--on mi300x,h100:2`, for example")
    devices = _devices(piece, typed) if typed else None
    return find_accelerator(name), devices


def _devices(piece: str, typed: str) -> int:
    devices = int(typed) if typed.isdecimal() and len(typed) <= 5 else 0  # no replica is larger
    if not 1 <= devices <= 4096:
        raise UsageError(f"'{piece}': the device count must be from 1 to 4096, as in `h100:8` or `8xh100`")
    return devices


def _split_count(piece: str) -> tuple[str, str]:
    """Split `h100:8` and `8xh100` into name and count. The text `7900xtx` is a name without a count."""
    name, colon, count = piece.partition(":")
    if colon:
        return name.strip(), count.strip() or "?"
    before, cross, after = piece.lower().partition("x")
    if cross and before.strip().isdecimal() and _is_known(after.strip()) and not _is_known(piece):
        return after.strip(), before.strip()
    return piece, ""


def _is_known(name: str) -> bool:
    try:
        load_accelerator(name)
    except UnknownName:
        return False
    return True


def tokens_choice(given: Tokens) -> int:
    """Parse a token count."""
    return parse_tokens(str(given))


def loads_choice(given: Loads) -> tuple[int, ...]:
    """Parse numbers of requests in flight. Return them in ascending order, each once."""
    pieces = given.split(",") if isinstance(given, str) else [given] if isinstance(given, int) else given
    loads = {_load(str(piece).strip()) for piece in pieces}
    if not 1 <= len(loads) <= MAX_LOADS:
        raise UsageError(f"concurrency takes from 1 to {MAX_LOADS} numbers, not {len(loads)}")
    return tuple(sorted(loads))


def _load(typed: str) -> int:
    if not (typed.isdecimal() and typed.isascii() and len(typed) <= 9):
        raise UsageError(f"'{typed[:40]}' is not a number of requests in flight; use `64` or `1,4,16,64`, for example")
    if int(typed) < 1:
        raise UsageError(f"concurrency must be at least 1, not {int(typed)}")
    return int(typed)


def split_choice(
    accelerator: Accelerator, devices: int | None, *, tp: int | None, pp: int, dp: int, ep: bool
) -> Parallelism:
    """Build the parallel split of a replica.

    Without `tp`, the number of tensor-parallel ranks is `devices` / (`pp` x `dp`). Raise an error if the split does not
    use exactly `devices` devices.
    """
    split = Parallelism(tp=tp or max(1, (devices or 1) // (pp * dp)), pp=pp, dp=dp, expert_parallel=ep)
    if devices is not None and split.devices != devices:
        ranks = " x ".join(
            f"{name} {count}" for name, count in (("tp", tp), ("pp", pp), ("dp", dp)) if count not in {None, 1}
        )
        raise UsageError(
            f"{accelerator.id}:{devices} has {devices} devices, but a split with {ranks or 'tp 1'} uses "
            f"{split.devices}; change the device count or the split"
        )
    return split


def engine_choice(options: "FitOptions", accelerator: Accelerator, split: Parallelism) -> Engine:
    """Return the engine with the given settings. Settings that are not given keep the engine's defaults."""
    usual = serving_defaults(
        serving_engine(options.engine), accelerator, version=options.engine_version, tp=split.tp, pp=split.pp
    )
    fraction = options.memory_fraction
    return replace(
        usual,
        memory_fraction=usual.memory_fraction if fraction is None else float(fraction),
        max_batched_tokens=options.batched_tokens or usual.max_batched_tokens,
        max_sequences=options.sequences or usual.max_sequences,
    )


def ranks_choice(text: str) -> Parallelism:
    """Parse a split such as `tp8` or `dp4,ep`. The number of tp, pp or dp ranks is 1 if the text does not name it."""
    ranks, whole = {"tp": 1, "pp": 1, "dp": 1}, False
    for piece in text.lower().replace(",", " ").split():
        name, count = piece[:2], piece[2:]
        if piece == "ep":
            whole = True
        elif name in ranks and count.isdecimal() and len(count) <= 4:  # no replica is larger
            ranks[name] = int(count)
        else:
            raise UsageError(
                f"'{piece}' is not a valid split; use `--prefill-split tp8` or `--prefill-split dp4,ep`, for example"
            )
    return Parallelism(**ranks, expert_parallel=whole)


def cache_choice(text: str) -> CacheDtype | None:
    """Parse a KV cache type. Return None for `auto`, which lets the engine choose the type."""
    try:
        return None if text.strip().lower() == "auto" else cache_dtype(text)
    except ConfigError as error:
        raise UsageError(f"--kv: {error}") from None


def model_choice(model: AskedModel, precision: str | None) -> ModelSpec:
    """Load a model in the requested weight format.

    If `precision` is None, keep the format of the released checkpoint.
    """
    name = None if precision is None else precision.strip().lower()
    if name is not None and name != FP16.name and name not in FORMATS:
        choices = f"use one of {', '.join((*FORMATS, FP16.name))}"
        if name == MXFP8.name:
            raise UsageError(f"--precision mxfp8: no measurement has weights in mxfp8; {choices}")
        raise UsageError(f"'{precision}' is not a weight format; {choices}")
    spec = model if isinstance(model, ModelSpec) else open_checkpoint(fspath(model)).spec
    if name is None:
        return spec
    if name == FP16.name:
        return spec.stored_as(FP16)
    experts = {weight.format.name for weight in spec.weights if weight.part is Part.ROUTED_EXPERTS}
    if experts and name not in experts and name in spec.quantisation:
        raise UsageError(
            f"--precision {name}: {spec.name} is released with experts in {', '.join(sorted(experts))} and other "
            f"weights in {name}; leave --precision out to use it as released"
        )
    return model_as_measured(spec, name)
