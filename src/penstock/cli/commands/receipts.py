"""Why was a request sent there, and what would another policy have done?"""

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.console import show
from penstock.cli.flags.shared_flags import AsJson

EXAMPLES = """
Examples:

- `penstock receipts receipts.0.jsonl receipts.1.jsonl`
- `penstock receipts receipts.0.jsonl --policy penstock,llm-d,round-robin`
- `penstock receipts receipts.0.jsonl --explain 12`
"""


def receipts_command(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="What `penstock route --receipts` wrote.")],
    policy: Annotated[
        str,
        typer.Option(
            "--policy",
            help="Whom to ask again, comma separated: penstock, round-robin, weighted-round-robin, least-request, "
            "in-flight-per-capacity, llm-d, llm-d-scorers, dynamo, sglang-cache-aware.",
        ),
    ] = "penstock,round-robin,least-request",
    explain: Annotated[
        int | None, typer.Option("--explain", metavar="N", help="Show one decision, endpoint by endpoint.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What would another policy have done with yesterday's traffic?

    Decisions that a gateway wrote down are made again by other policies, each with what was known at its time: how
    often they name the same endpoint, how many requests would miss their promise, and the engine time they would
    take, in dollars. That is no bill: pools that are not `elastic` are paid anyway and cost the same under all of them.
    """
    from penstock.api.receipts import receipts

    show(receipts(files, policy=policy, explained=explain), as_json=as_json)


receipts_command.__doc__ = f"{receipts_command.__doc__}\n{EXAMPLES}"
