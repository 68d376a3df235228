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

    Starts Envoy in front of a fleet. For every request, the policy inside Envoy chooses the endpoint with the least
    expected harm: missed SLOs, with dollars converted. The simulator runs the same function. Where Envoy cannot load
    the policy, picker processes choose. Envoy forwards the requests and retries on the next endpoint. When the
    fleet file is edited, the gateway reloads it. SIGTERM drains the gateway: for `--drain-grace` seconds `/health`
    fails but requests are served, then requests in flight have `--drain` seconds to finish.

    Examples:

    - `penstock route running.yaml --listen 127.0.0.1:8080`
    - `penstock route running.yaml --listen 0.0.0.0:8080 --access-log /var/log/penstock.json`
    - `penstock route running.yaml --listen 0.0.0.0:8443 --access access.yaml --tls-cert cert.pem --tls-key key.pem`
    - `penstock route running.yaml --protocol ext_proc --pickers 4`
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
    click.echo(f"starting {'pickers' if options.only_pick else 'Envoy'} for {fleet}", err=True)
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
