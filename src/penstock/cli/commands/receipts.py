"""The `receipts` command."""

from pathlib import Path
from typing import Annotated

from penstock.api.options.option_fields import Flag
from penstock.cli.console import Watch, show
from penstock.cli.flags.shared_flags import AsJson

EXAMPLES = """
Examples:

- `penstock receipts receipts.0.jsonl receipts.1.jsonl`
- `penstock receipts receipts.0.jsonl --policy penstock,llm-d,round-robin`
- `penstock receipts receipts.0.jsonl --explain 12`
"""


def receipts_command(
    files: Annotated[
        list[Path], Flag(positional=True, metavar="FILE...", help="Files that `penstock route --receipts` wrote.")
    ],
    policy: Annotated[
        str,
        Flag(
            name="--policy",
            help="Policies to replay, comma separated: penstock, round-robin, weighted-round-robin, least-request, "
            "in-flight-per-capacity, llm-d, llm-d-scorers, dynamo, sglang-cache-aware.",
        ),
    ] = "penstock,round-robin,least-request",
    explain: Annotated[
        int | None,
        Flag(
            name="--explain",
            metavar="N",
            help="Show the predictions of decision N for every endpoint. The first decision has the number 1.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What would another policy have done with yesterday's traffic?

    Replays the recorded decisions of a gateway with other policies. Each policy sees the state that the gateway saw at
    the time. Prints how often each policy chooses the same endpoint as the gateway, the fraction of requests expected
    to miss their SLO, and the cost of the engine time used. A pool with fixed capacity costs the same under every
    policy. Only `elastic` pools can turn saved engine time into a lower bill.
    """
    from penstock.api.receipts import receipts

    with Watch("replaying decisions"):
        answer = receipts(files, policy=policy, explained=explain)
    show(answer, as_json=as_json)


receipts_command.__doc__ = f"{receipts_command.__doc__}\n{EXAMPLES}"
