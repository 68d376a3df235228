"""Rejects options without effect before anything is computed, and names the flag to drop."""

from penstock.errors import UsageError


def refuse_ignored(
    *,
    prefill: int,
    prefill_split: str | None,
    kv_gbps: float | None,
    decode_replicas: int = 1,
    mtp: bool = False,
    drafted: int = 0,
    accepted: float | None = None,
    light: bool = False,
) -> None:
    """Raise for options that have no effect in combination with the others.

    `decode_replicas` is --replicas where it counts decode replicas only.
    """
    drafting = {"--mtp": mtp, "--drafted": bool(drafted), "--accepted": accepted is not None}
    if prefill:
        _refuse({"--light": light}, "gives no roofline of disaggregated replicas")
        _refuse(drafting, "does not model drafted tokens in disaggregated replicas yet")
        return
    only = {
        "--prefill-split": prefill_split is not None,
        "--kv-gbps": kv_gbps is not None,
        "--replicas": decode_replicas > 1,
    }
    words = [flag for flag, given in only.items() if given]
    if words:
        raise UsageError(f"{', '.join(words)} would change nothing without --prefill; drop it or write --prefill 1")
    if accepted is not None and not (mtp or drafted):
        raise UsageError("--accepted would change nothing without drafts; drop it or write --drafted 3 or --mtp")


def _refuse(flags: dict[str, bool], reason: str) -> None:
    words = [flag for flag, given in flags.items() if given]
    if words:
        raise UsageError(f"--prefill {reason}; drop {' and '.join(words)}")
