"""The `bill` command."""

from pathlib import Path
from typing import Annotated

from penstock.api.options.option_fields import Flag
from penstock.cli.console import Watch, show
from penstock.cli.flags.shared_flags import AsJson
from penstock.errors import UsageError

EXAMPLES = """
Examples:

- `penstock bill receipts.*.jsonl --fleet fleet.yaml`
- `penstock bill receipts.*.jsonl --fleet fleet.yaml --from 2026-11-01 --to 2026-12-01 --idle spread`
- `penstock bill receipts.*.jsonl --fleet fleet.yaml --api-usd-per-mtok 0.60,0.60 --json`
"""


def bill_command(
    files: Annotated[
        list[Path], Flag(positional=True, metavar="FILE...", help="Files that `penstock route --receipts` wrote.")
    ],
    fleet: Annotated[Path, Flag(name="--fleet", metavar="FILE", help="The fleet file that was routed, with prices.")],
    idle: Annotated[
        str,
        Flag(
            name="--idle",
            metavar="RULE",
            help="Idle time on a line of its own (separate), or divided among the requests (spread).",
        ),
    ] = "separate",
    start: Annotated[
        str | None, Flag(name="--from", metavar="TIME", help="Start of the period, in UTC. Default: first request.")
    ] = None,
    end: Annotated[
        str | None, Flag(name="--to", metavar="TIME", help="End of the period, in UTC. Default: last request.")
    ] = None,
    replica_hours: Annotated[
        list[str] | None,
        Flag(
            name="--replica-hours",
            metavar="POOL=HOURS",
            help="Rented hours of all replicas of a pool together, if not all of them were up all the time. Repeat for "
            "more pools.",
        ),
    ] = None,
    api_usd_per_mtok: Annotated[
        str | None,
        Flag(name="--api-usd-per-mtok", metavar="IN,OUT", help="API price per million tokens, to compare with."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What does each tenant cost?

    Charges each recorded request the rented time that it caused: the seconds that it added to its replica's steps, and
    for each of its steps an equal part of the other busy time. Cached prefixes are credited. The dollars of all tenants
    and of idle time add up to the rent. Also prints kept and missed SLOs, the cost of the same work on pools of each
    vendor of the fleet, and the price of an API if it is given.
    """
    from penstock.api.bill import bill

    hours = dict(_hours(text) for text in replica_hours or ())
    with Watch("charging requests"):
        answer = bill(
            files,
            fleet,
            idle=idle,
            api_usd_per_mtok=api_usd_per_mtok,
            start=start,
            end=end,
            replica_hours=hours,
        )
    show(answer, as_json=as_json)


def _hours(text: str) -> tuple[str, float]:
    pool, _, hours = text.rpartition("=")
    try:
        value = float(hours)
    except ValueError:
        value = -1.0
    if not pool or not 0 <= value < float("inf"):
        raise UsageError(f"--replica-hours is '{text}'; write POOL=HOURS, such as h100=1440")
    return pool, value


bill_command.__doc__ = f"{bill_command.__doc__}\n{EXAMPLES}"
