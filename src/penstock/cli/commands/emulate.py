"""How does a fleet answer that nobody owns?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.console import write_file

if TYPE_CHECKING:
    from penstock.fleet.pools import Fleet

EXAMPLES = """
Examples:

- `penstock emulate fleet.yaml --port 18000 --write running.yaml`
- `penstock emulate fleet.yaml --port 18000 --control 127.0.0.1:17999 --speed 10`
- `curl -d '{"endpoint": "127.0.0.1:18000", "fault": "slow", "times": 3}' 127.0.0.1:17999`
- `curl -d '{"pool": "h100", "fault": "die"}' 127.0.0.1:17999`
"""


def emulate_command(
    fleet: Annotated[Path, typer.Argument(help="A fleet file; `penstock plan --fleet` writes one.")],
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            metavar="N",
            min=1,
            max=65535,
            help="Serve every replica on 127.0.0.1, from this port on. Default: the fleet's own endpoints.",
        ),
    ] = None,
    write: Annotated[
        Path | None, typer.Option("--write", help="Write the fleet with these addresses, for `penstock route`.")
    ] = None,
    control: Annotated[
        str | None, typer.Option("--control", metavar="HOST:PORT", help="Take faults as commands here.")
    ] = None,
    speed: Annotated[
        float, typer.Option("--speed", metavar="N", min=0.001, max=1000, help="Engine seconds that pass in one second.")
    ] = 1.0,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Same seed, same lengths of answers.")] = 0,
) -> None:
    """How does a fleet answer that nobody owns?

    Serves OpenAI-compatible endpoints for every replica of a fleet from one process: chat and text completions,
    streamed or not, `/v1/models`, `/health` and the `/metrics` of vLLM or SGLang. Batching, KV blocks and seconds are
    those of the simulator, on a real clock. Faults are set while it runs: die, hang, slow, refuse, stale, lie, drop,
    none; for an endpoint (or "all"), a pool or a model, and for all where none is named.
    """
    from penstock.api.emulate import emulate

    def ready(running: "Fleet") -> None:
        if write is not None:
            from penstock.fleet.fleet_file import write_fleet

            write_file(write, write_fleet(running))
        count = sum(len(pool.endpoints) for pool in running.pools)
        typer.echo(f"{count} endpoints of {len(running.pools)} pools answer; Ctrl-C stops", err=True)

    typer.echo(f"laying out the engines of {fleet}", err=True)
    emulate(fleet, port=port, control=control, speed=speed, seed=seed, ready=ready)


emulate_command.__doc__ = f"{emulate_command.__doc__}\n{EXAMPLES}"
