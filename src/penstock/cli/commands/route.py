"""The `route` command."""

from pathlib import Path
from typing import Annotated

import click

from penstock.api.options.gateway_options import GatewayOptions
from penstock.api.options.option_fields import Flag
from penstock.cli.flags.option_flags import Given, with_flags


@with_flags(GatewayOptions)
def route_command(
    given: Given,
    fleet: Annotated[Path, Flag(positional=True, help="A fleet file with the addresses of its endpoints.")],
    *,
    tls_cert: Annotated[
        Path | None, Flag(name="--tls-cert", help="Certificate for clients, with its chain, as PEM.")
    ] = None,
    tls_key: Annotated[Path | None, Flag(name="--tls-key", help="Private key of the certificate, as PEM.")] = None,
    drain: Annotated[
        float,
        Flag(
            name="--drain",
            metavar="SECONDS",
            min=0,
            help="Time that requests in flight get to finish, after the grace period.",
        ),
    ] = 30.0,
    drain_grace: Annotated[
        float,
        Flag(
            name="--drain-grace",
            metavar="SECONDS",
            min=0,
            help="Time after SIGTERM in which health checks fail but requests are served.",
        ),
    ] = 5.0,
    print_envoy: Annotated[
        bool,
        Flag(
            name="--print-envoy",
            help="Print a configuration for `envoy -c` that queries the --only-pick address, and stop.",
        ),
    ] = False,
) -> None:
    """Which endpoint should serve each request?

    Starts Envoy in front of a fleet, and pickers that choose an endpoint for every request. The pickers choose the
    endpoint with the least expected harm: missed SLOs, with dollars converted. The simulator runs the same function.
    Envoy forwards the requests, retries on the next endpoint, and falls back to weights if no picker answers. When the
    fleet file is edited, the gateway reloads it. SIGTERM drains the gateway: for `--drain-grace` seconds `/health`
    fails but requests are served, then requests in flight have `--drain` seconds to finish.

    Examples:

    - `penstock route running.yaml --listen 127.0.0.1:8080`
    - `penstock route running.yaml --listen 0.0.0.0:8080 --pickers 4 --access-log /var/log/penstock.json`
    - `penstock route running.yaml --listen 0.0.0.0:8443 --access access.yaml --tls-cert cert.pem --tls-key key.pem`
    - `penstock route running.yaml --protocol ext_proc`
    - `penstock route fleet.yaml --protocol ext_proc --only-pick 0.0.0.0:9002 --follow-names`
    - `penstock route fleet.yaml --protocol ext_proc --only-pick 127.0.0.1:9002 --print-envoy > envoy.json`
    """
    from penstock.api.route import envoy_document, route

    if (tls_cert is None) != (tls_key is None):
        raise click.BadParameter("give both --tls-cert and --tls-key, or neither")
    tls = None if tls_cert is None or tls_key is None else (tls_cert, tls_key)
    options = GatewayOptions(**given, tls=tls)
    if print_envoy:
        click.echo(envoy_document(fleet, options))
        return
    what = f"{options.pickers} picker{'s' if options.pickers > 1 else ''}"
    click.echo(f"starting {what if options.only_pick else f'Envoy and {what}'} for {fleet}", err=True)
    route(
        fleet,
        options,
        drain_s=drain,
        grace_s=drain_grace,
        ready=lambda: click.echo(
            f"routing on {options.only_pick or options.listen}; `penstock top` shows the gateway, Ctrl-C drains and "
            "stops it",
            err=True,
        ),
    )
