"""Which endpoint should serve each request?"""

from pathlib import Path
from typing import Annotated

import typer

EXAMPLES = """
Examples:

- `penstock route running.yaml --listen 127.0.0.1:8080`
- `penstock route running.yaml --listen 0.0.0.0:8080 --pickers 4 --access-log /var/log/penstock.json`
- `penstock route running.yaml --listen 0.0.0.0:8443 --access access.yaml --tls-cert gateway.pem --tls-key gateway.key`
- `penstock route running.yaml --door ext_proc`
- `penstock route fleet.yaml --door ext_proc --only-pick 0.0.0.0:9002 --follow-names`
- `penstock route fleet.yaml --door ext_proc --only-pick 127.0.0.1:9002 --print-envoy > envoy.json`
"""


def route_command(
    fleet: Annotated[Path, typer.Argument(help="A fleet file with the addresses of its endpoints.")],
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where clients send requests.")
    ] = "127.0.0.1:8080",
    pickers: Annotated[
        int, typer.Option("--pickers", metavar="N", min=1, max=64, help="Processes that decide; one core each.")
    ] = 1,
    door: Annotated[
        str, typer.Option("--door", help="How Envoy asks: ext_authz, ext_proc (streamed) or ext_proc_buffered.")
    ] = "ext_authz",
    access_log: Annotated[
        Path | None, typer.Option("--access-log", help="One JSON line per request: who served it, never what it said.")
    ] = None,
    metrics: Annotated[
        str,
        typer.Option("--metrics", metavar="HOST:PORT", help="Where Prometheus and `penstock top` find its metrics."),
    ] = "127.0.0.1:9464",
    receipts: Annotated[
        Path | None, typer.Option("--receipts", help="Write every thousandth decision down, with all it was made from.")
    ] = None,
    access: Annotated[
        Path | None, typer.Option("--access", help="Who may ask: a file of keys, or of who signs tokens. Default: all.")
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", help="The certificate clients are shown, with its chain, as PEM.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="Its private key, as PEM.")] = None,
    otlp: Annotated[
        str | None,
        typer.Option("--otlp", metavar="URL", help="Send OpenTelemetry spans there, by OTLP over HTTP."),
    ] = None,
    trace_fraction: Annotated[
        float, typer.Option("--trace-fraction", metavar="0..1", help="Of requests, those that are traced.")
    ] = 0.01,
    only_pick: Annotated[
        str | None,
        typer.Option(
            "--only-pick", metavar="HOST:PORT", help="Start no Envoy: answer a gateway of yours, over ext_proc."
        ),
    ] = None,
    follow_names: Annotated[
        bool, typer.Option("--follow-names", help="Look endpoints' names up again, each with all the addresses it has.")
    ] = False,
    drain: Annotated[
        float, typer.Option("--drain", metavar="SECONDS", min=0, help="Then wait this long for answers under way.")
    ] = 30.0,
    drain_grace: Annotated[
        float,
        typer.Option(
            "--drain-grace", metavar="SECONDS", min=0, help="After SIGTERM, fail health checks and serve on this long."
        ),
    ] = 5.0,
    print_envoy: Annotated[
        bool, typer.Option("--print-envoy", help="Print a file for `envoy -c` that asks at --only-pick, and stop.")
    ] = False,
) -> None:
    """Which endpoint should serve each request?

    Starts Envoy in front of a fleet, with pickers that name the endpoint for every request: where it does the least
    expected harm, by the same function the simulator runs. Envoy carries every byte, retries on the next endpoint and
    falls back to weights when no picker answers. Editing the fleet file reloads it; SIGTERM drains: first
    `/health` fails while requests are served for `--drain-grace`, then answers under way get `--drain`.
    """
    from penstock.api.route import GatewayOptions, envoy_document, route

    if (tls_cert is None) != (tls_key is None):
        raise typer.BadParameter("--tls-cert and --tls-key go together")
    options = GatewayOptions(
        listen=listen,
        pickers=pickers,
        door=door,
        access_log=None if access_log is None else str(access_log.absolute()),
        metrics=metrics,
        receipts=None if receipts is None else str(receipts.absolute()),
        access=access,
        tls=None if tls_cert is None or tls_key is None else (tls_cert, tls_key),
        traces=otlp,
        trace_fraction=trace_fraction,
        only_pick=only_pick,
        follow_names=follow_names,
    )
    if print_envoy:
        typer.echo(envoy_document(fleet, options))
        return
    what = f"{pickers} picker{'s' if pickers > 1 else ''}"
    typer.echo(f"starting {what if only_pick else f'Envoy and {what}'} for {fleet}", err=True)
    route(
        fleet,
        options,
        drain_s=drain,
        grace_s=drain_grace,
        ready=lambda: typer.echo(
            f"routing on {only_pick or listen}; `penstock top` shows it, Ctrl-C drains and stops", err=True
        ),
    )


route_command.__doc__ = f"{route_command.__doc__}\n{EXAMPLES}"
