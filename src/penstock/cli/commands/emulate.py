"""The `emulate` command."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from penstock.api.options.gateway_options import EmulateOptions
from penstock.api.options.option_fields import Flag
from penstock.cli.console import write_file
from penstock.cli.flags.option_flags import Given, with_flags

if TYPE_CHECKING:
    from penstock.fleet.pools import Fleet


@with_flags(EmulateOptions)
def emulate_command(
    given: Given,
    *,
    write: Annotated[
        Path | None,
        Flag(name="--write", help="Write a fleet file with the addresses of the mock endpoints, for `penstock route`."),
    ] = None,
) -> None:
    """Serve mock OpenAI endpoints with simulated latency.

    One process serves an OpenAI-compatible endpoint for every replica of a fleet: chat and text completions, streamed
    or not, `/v1/models`, `/health` and the `/metrics` of vLLM or SGLang. Batching, KV blocks and latencies follow the
    rules of the simulator, but in real time. Commands to the `--control` address set a fault (die, hang, slow, refuse,
    stale, lie, drop) or clear the fault (none). A fault applies to the endpoint, pool or model that the command names,
    or to all endpoints if the command names none. A command with `difference` and `value` starts endpoints again with
    another setting, such as another KV cache dtype, to test comparisons of servers.

    Examples:

    - `penstock emulate fleet.yaml --port 18000 --write running.yaml`
    - `penstock emulate fleet.yaml --port 18000 --control 127.0.0.1:17999 --speed 10`
    - `curl -d '{"endpoint": "127.0.0.1:18000", "fault": "slow", "times": 3}' 127.0.0.1:17999`
    - `curl -d '{"pool": "h100", "fault": "die"}' 127.0.0.1:17999`
    - `curl -d '{"pool": "h100", "difference": "kv", "value": "fp8"}' 127.0.0.1:17999`
    """
    from penstock.api.emulate import emulate

    def ready(running: "Fleet") -> None:
        if write is not None:
            from penstock.fleet.fleet_file import write_fleet

            write_file(write, write_fleet(running))
        count = sum(len(pool.endpoints) for pool in running.pools)
        click.echo(f"{count} endpoints of {len(running.pools)} pools are ready; Ctrl-C stops them", err=True)

    click.echo(f"predicting step times for {given['fleet']}", err=True)
    emulate(**given, ready=ready)
