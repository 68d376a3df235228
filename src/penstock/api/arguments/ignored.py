"""Rejects options that would have no effect.

The error names the flag to drop, and is raised before anything is computed.
"""

from penstock.api.options.model_options import DeploymentOptions
from penstock.errors import UsageError


def refuse_ignored(
    options: DeploymentOptions,
    *,
    decode_replicas: int = 1,
    drafted: int = 0,
    accepted: float | None = None,
    roofline: bool = False,
    simulated: bool = False,
) -> None:
    """Raise an error if an option has no effect in combination with the other options.

    `decode_replicas` is the value of --replicas in commands where that flag counts only decode replicas. `simulated`
    states whether the deployment is simulated. Decode replicas that draft tokens can be predicted, but not simulated.
    """
    if accepted is not None and not (options.mtp or drafted):
        raise UsageError("--accepted would change nothing without drafts; drop it, or add `--drafted 3` or --mtp")
    if options.prefill:
        _refuse({"--roofline": roofline}, "has no roofline prediction")
        _refuse({"--mtp": options.mtp and simulated}, "cannot be simulated with drafted tokens yet")
        return
    only = {
        "--prefill-split": options.prefill_split is not None,
        "--kv-gbps": options.kv_gbps is not None,
        "--replicas": decode_replicas > 1,
    }
    words = [flag for flag, given in only.items() if given]
    if words:
        raise UsageError(f"{', '.join(words)} would change nothing without --prefill; drop it or add `--prefill 1`")


def _refuse(flags: dict[str, bool], reason: str) -> None:
    words = [flag for flag, given in flags.items() if given]
    if words:
        raise UsageError(f"--prefill {reason}; drop {' and '.join(words)}")
