"""The `top` command."""

import time
from typing import Annotated

from penstock.api.options.option_fields import Flag

EXAMPLES = """
Examples:

- `penstock top`
- `penstock top 127.0.0.1:9464 --every 5`
- `penstock top --once`
"""


def top_command(
    metrics: Annotated[
        str, Flag(positional=True, metavar="HOST:PORT", help="Address of the gateway's metrics page.")
    ] = "127.0.0.1:9464",
    every: Annotated[float, Flag(name="--every", metavar="SECONDS", min=0.1, help="Time between two updates.")] = 1.0,
    once: Annotated[bool, Flag(name="--once", help="Print one update and stop.")] = False,
) -> None:
    """What is a running gateway doing?

    Shows the endpoints of `penstock route` live: requests sent and in flight, the queue and KV cache that each endpoint
    reports, the age of the report, failures and retries, and cost; by class the price of a miss and the kept SLOs; by
    tenant requests, SLOs, tokens and dollars.
    """
    from rich.live import Live

    from penstock.api.top import read_gateway
    from penstock.cli.console import stdout
    from penstock.report.top import render_top

    console, before = stdout(), read_gateway(metrics)
    if once:
        time.sleep(every)
        console.print(render_top(read_gateway(metrics), before, every))
        return
    with Live(render_top(before, None, every), console=console, auto_refresh=False) as live:
        while True:
            time.sleep(every)
            now = read_gateway(metrics)
            live.update(render_top(now, before, every), refresh=True)
            before = now


top_command.__doc__ = f"{top_command.__doc__}\n{EXAMPLES}"
