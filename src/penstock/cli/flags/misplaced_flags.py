"""Rejects flags that have no effect with --fleet, and flags that have no effect without it.

The error names a flag or form to use instead.
"""

from collections.abc import Mapping
from typing import Final

import click

from penstock.errors import UsageError

_FILE: Final = "set it in the fleet file"
NOT_FOR_A_FLEET: Final[Mapping[str, str]] = {
    "model": f"{_FILE}: `model: ...` of a pool",
    "on": f"{_FILE}: `accelerator: ...` and `split: ...` of a pool",
    "replicas": f"{_FILE}: `replicas: ...` of a pool",
    "engine": f"{_FILE}: `engine: {{name: ...}}` of a pool",
    "precision": f"{_FILE}: `weights: ...` of a pool",
    "kv": f"{_FILE}: `kv: ...` of a pool",
    "dp": f"{_FILE}: `split: {{dp: ...}}` of a pool",
    "ep": f"{_FILE}: `split: {{ep: true}}` of a pool",
    "mtp": f"{_FILE}: `drafted_tokens: ...` of a pool",
    "prefill": f"{_FILE}: a pool with `role: prefill` and one with `role: decode`",
    "prefill_split": f"{_FILE}: `split: ...` of the pool with `role: prefill`",
    "kv_gbps": f"{_FILE}: `kv_gbps: ...` of the pool with `role: prefill`",
    "max_num_seqs": f"{_FILE}: `settings: {{max_num_seqs: ...}}` of a pool's engine",
    "max_num_batched_tokens": f"{_FILE}: `settings: {{max_num_batched_tokens: ...}}` of a pool's engine",
    "prefix_caching": f"{_FILE}: `settings: {{enable_prefix_caching: false}}` of a pool's engine",
    "route": "choose the policy with --policy",
    "users": "a fleet has open arrivals: use --rate and --arrivals",
    "think": "a fleet has open arrivals: use --rate and --arrivals",
    "capacity": "raise --rate until the SLO is missed",
    "perfetto": "the steps of one replica are written without --fleet; --chart draws the policies",
}
ONLY_FOR_A_FLEET: Final[Mapping[str, str]] = {
    "policy": "use --route between replicas of one kind",
    "events": "write the deployment as a fleet of one pool",
    "reports": "without --fleet the router knows the state of every replica",
    "pickers": "without --fleet the router knows the state of every replica",
}


def refuse_misplaced(context: click.Context, *, of_a_fleet: bool) -> None:
    """Raise a one-line error if the user gave flags that would have no effect."""
    unread = NOT_FOR_A_FLEET if of_a_fleet else ONLY_FOR_A_FLEET
    typed = [
        parameter
        for parameter in context.command.params
        if parameter.name in unread and _was_typed(context, parameter.name)
    ]
    if typed:
        fixes = "; ".join(dict.fromkeys(unread[str(parameter.name)] for parameter in typed))
        words = [next((word for word in one.opts if word.startswith("-")), "the model") for one in typed]
        where = "with --fleet" if of_a_fleet else "without --fleet"
        raise UsageError(f"{', '.join(words)} would change nothing {where}; {fixes}")


def _was_typed(context: click.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name not in {"DEFAULT", "DEFAULT_MAP"}
