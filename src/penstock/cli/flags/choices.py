"""How are flags read? The values people may type, and what each stands for."""

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.catalog.accelerator import Accelerator
    from penstock.fleet import Parallelism
    from penstock.fleet.engine import EngineName
    from penstock.model import CacheDtype, ModelSpec
    from penstock.performance.prediction.predict import Speculation
    from penstock.simulation.options import Policy


def counted_targets(text: str) -> "list[tuple[Accelerator, int | None]]":
    """Read `mi300x,h100:2,8xb200`: accelerators with the count that was typed, if any."""
    from penstock.catalog import load_accelerator

    targets = []
    for piece in text.split(","):
        name, typed = _counted(piece.strip())
        if not name:
            raise UsageError(f"'{text}' names no accelerator; write --on mi300x or --on mi300x,h100:2")
        devices = int(typed) if typed.isdecimal() and len(typed) <= 5 else 0  # noqa: PLR2004 - no replica is larger
        if typed and not 1 <= devices <= 4096:  # noqa: PLR2004 - as above
            raise UsageError(f"'{piece.strip()}': the count must be 1 to 4096, as in h100:8 or 8xh100")
        targets.append((load_accelerator(name), devices if typed else None))
    return targets


def _counted(piece: str) -> tuple[str, str]:
    """Split `h100:8` and `8xh100` into name and count; `7900xtx` is a name."""
    name, colon, count = piece.partition(":")
    if colon:
        return name.strip(), count.strip() or "?"
    before, cross, after = piece.lower().partition("x")
    if cross and before.strip().isdecimal() and _is_known(after.strip()) and not _is_known(piece):
        return after.strip(), before.strip()
    return piece, ""


def _is_known(name: str) -> bool:
    from penstock.catalog import load_accelerator
    from penstock.errors import UnknownName

    try:
        load_accelerator(name)
    except UnknownName:
        return False
    return True


def split_choice(
    part: "Accelerator", devices: int | None, *, tp: int | None, pp: int, dp: int, ep: bool
) -> "Parallelism":
    """Split a replica as asked; ranks nobody counted are tensor parallel, and a typed count must come out exactly."""
    from penstock.fleet import Parallelism

    split = Parallelism(tp=tp or max(1, (devices or 1) // (pp * dp)), pp=pp, dp=dp, expert_parallel=ep)
    if devices is not None and split.devices != devices:
        ranks = " x ".join(
            f"{name} {count}" for name, count in (("tp", tp), ("pp", pp), ("dp", dp)) if count not in {None, 1}
        )
        raise UsageError(f"{part.id}:{devices} is {devices} devices, which {ranks or 'tp 1'} does not split evenly")
    return split


def ranks_choice(text: str) -> "Parallelism":
    """Read a split as `tp8` or `dp4,ep`; ranks nobody names are one."""
    from penstock.fleet import Parallelism

    ranks, whole = {"tp": 1, "pp": 1, "dp": 1}, False
    for piece in text.lower().replace(",", " ").split():
        name, count = piece[:2], piece[2:]
        if piece == "ep":
            whole = True
        elif name in ranks and count.isdecimal() and len(count) <= 4:  # noqa: PLR2004 - no replica is larger
            ranks[name] = int(count)
        else:
            raise UsageError(f"'{piece}' is not a part of a split; write --prefill-split tp8 or dp4,ep")
    return Parallelism(**ranks, expert_parallel=whole)


def engine_choice(text: str) -> "EngineName":
    """Read an engine's name."""
    name = text.strip().lower()
    if name == "vllm":
        return "vllm"
    if name == "sglang":
        return "sglang"
    raise UsageError(f"'{text}' is not an engine this version knows; write vllm or sglang")


def cache_choice(text: str) -> "CacheDtype | None":
    """Read a KV dtype; `auto` is the engine's own choice."""
    from penstock.model import cache_dtype

    try:
        return None if text.strip().lower() == "auto" else cache_dtype(text)
    except ConfigError as error:
        raise UsageError(f"--kv: {error}") from None


def model_choice(model: str, precision: str | None) -> "ModelSpec":
    """Open a model, stored as asked: a measured format the way measurements have it; None is as released."""
    from penstock.checkpoint import open_checkpoint
    from penstock.model.spec import model_as_measured
    from penstock.model.weight import FORMATS, FP16

    name = None if precision is None else precision.strip().lower()
    if name is not None and name != FP16.name and name not in FORMATS:
        raise UsageError(f"'{precision}' is not a weight format; write one of {', '.join((*FORMATS, FP16.name))}")
    spec = open_checkpoint(model).spec
    if name is None:
        return spec
    return spec.stored_as(FP16) if name == FP16.name else model_as_measured(spec, name)


def speculation_choice(
    spec: "ModelSpec", *, mtp: bool, drafted: int, accepted: float | None
) -> "Callable[[str], Speculation] | None":
    """Read how tokens are drafted; what an engine makes of it depends on its name."""
    from penstock.benchmark.shipped_drafts import shipped_drafts
    from penstock.performance.prediction.drafting import USUAL_DRAFTED, multi_token_prediction
    from penstock.performance.prediction.predict import Speculation

    if mtp:

        def own(engine: str) -> Speculation:
            found = multi_token_prediction(spec, engine, shipped_drafts(), drafted_tokens=drafted or USUAL_DRAFTED)
            return found if accepted is None else replace(found, accepted_tokens=accepted, grounds="as given")

        return own
    if not drafted:
        return None
    if accepted is None:
        raise UsageError("--drafted: say how many tokens a step yields: --accepted 2.4")
    given = Speculation(drafted_tokens=drafted, accepted_tokens=accepted)
    return lambda _: given


def route_choice(text: str) -> "Policy":
    """Read how requests are shared between replicas."""
    name = text.strip().lower()
    if name == "least-requests":
        return "least-requests"
    if name == "least-tokens":
        return "least-tokens"
    if name == "round-robin":
        return "round-robin"
    raise UsageError(f"'{text}' is not a way to share requests; write least-requests, least-tokens or round-robin")
