"""Rejects options without effect before anything is computed, and names the flag to drop."""

from penstock.api.options.model_options import DeploymentOptions
from penstock.errors import UsageError


def refuse_ignored(
    options: DeploymentOptions,
    *,
    decode_replicas: int = 1,
    drafted: int = 0,
    accepted: float | None = None,
    roofline: bool = False,
) -> None:
    """Raise for options that have no effect in combination with the others.

    `decode_replicas` is --replicas where it counts decode replicas only.
    """
    drafting = {"--mtp": options.mtp, "--drafted": bool(drafted), "--accepted": accepted is not None}
    if options.prefill:
        _refuse({"--roofline": roofline}, "has no roofline of disaggregated replicas")
        _refuse(drafting, "does not model drafted tokens in disaggregated replicas yet")
        return
    only = {
        "--prefill-split": options.prefill_split is not None,
        "--kv-gbps": options.kv_gbps is not None,
        "--replicas": decode_replicas > 1,
    }
    words = [flag for flag, given in only.items() if given]
    if words:
        raise UsageError(f"{', '.join(words)} would change nothing without --prefill; drop it or write --prefill 1")
    if accepted is not None and not (options.mtp or drafted):
        raise UsageError("--accepted would change nothing without drafts; drop it or write --drafted 3 or --mtp")


def _refuse(flags: dict[str, bool], reason: str) -> None:
    words = [flag for flag, given in flags.items() if given]
    if words:
        raise UsageError(f"--prefill {reason}; drop {' and '.join(words)}")
