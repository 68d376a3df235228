"""What is a running gateway doing?"""

import time
from typing import Annotated

import typer

EXAMPLES = """
Examples:

- `penstock top`
- `penstock top 127.0.0.1:9464 --every 5`
- `penstock top --once`
"""


def top_command(
    metrics: Annotated[
        str, typer.Argument(metavar="HOST:PORT", help="Where the gateway shows its metrics.")
    ] = "127.0.0.1:9464",
    every: Annotated[float, typer.Option("--every", metavar="SECONDS", min=0.1, help="Between two looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look twice, a little apart, print, and stop.")] = False,
) -> None:
    """What is a running gateway doing?

    Shows the endpoints of `penstock route` live: what is sent to each, what it has in flight, its queue and KV cache as
    it says, how old that is, what failed or moved elsewhere, and what it costs.
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
