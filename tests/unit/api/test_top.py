"""`penstock top` reads a gateway's page, and tells one from what else answers there."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from subprocess import CompletedProcess
from threading import Thread

import pytest
from click.testing import CliRunner
from rich.console import Console

from penstock.api.top import read_gateway
from penstock.cli.root import app
from penstock.emulator.emulated_engine import Totals
from penstock.emulator.metrics_page import EngineState, Observed, vllm_page
from penstock.errors import UsageError
from penstock.gateway.metrics_view import read_view
from penstock.report.top import render_top

Run = Callable[..., CompletedProcess[str]]

PLACE = 'endpoint="10.0.0.1:8000",pool="h100",model="llama"'
GATEWAY = f"""penstock_picks_total{{{PLACE}}} 7.0
penstock_endpoint_up{{{PLACE}}} 1.0
penstock_picker_up{{picker="0"}} 1.0
"""
ENGINE = vllm_page(
    EngineState(
        model="llama",
        running=1,
        waiting=0,
        used_blocks=2,
        blocks=200,
        block_tokens=16,
        cache_dtype="auto",
        prefix_caching=True,
        totals=Totals(),
        observed=Observed(),
    )
).decode()


@contextmanager
def serving(page: str) -> Iterator[str]:
    """Answer every GET with a page."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("page", [ENGINE, "[]", ""])
def test_what_is_no_gateway_is_said_to_be_none(page: str, penstock: Run) -> None:
    with serving(page) as address:
        with pytest.raises(UsageError, match="answers, but is not the metrics page of a gateway") as refused:
            read_gateway(address)
        assert address in str(refused.value)
        shown = penstock("top", address, "--once", "--every", "0.1")
    assert (shown.returncode, shown.stdout, shown.stderr.count("\n")) == (2, "", 1)
    assert "--metrics" in shown.stderr


def test_a_gateway_is_shown() -> None:
    with serving(GATEWAY) as address:
        shown = CliRunner(env={"COLUMNS": "150"}).invoke(app, ["top", address, "--once", "--every", "0.1"])
    assert shown.exit_code == 0
    assert "10.0.0.1:8000" in shown.stdout
    assert "1 of 1 pickers" in shown.stdout
    assert "Envoy" not in shown.stdout  # pickers behind a gateway of others have none


def test_what_envoy_counted_is_said_to_be_older_than_the_table() -> None:
    """Envoy is asked once a second: just after traffic it tells of requests in a second that has no picks."""
    asked = "penstock_requests_total {}\npenstock_active_requests 0.0\npenstock_fallback_requests_total 3.0\n"
    before, now = (read_view(GATEWAY + asked.format(count)) for count in (100.0, 117.0))
    console = Console(file=StringIO(), width=150, color_system=None)
    console.print(render_top(now, before, 1.0))
    envoy, pickers, *_ = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert envoy.rstrip() == "Envoy, up to 1 s ago:  17 requests/s  0 active  0 5xx/s  3 by weight"
    assert pickers.startswith("Now:  0.0 picks/s  1 of 1 pickers")


def test_no_price_is_no_zero_dollars() -> None:
    """`$0.00 per hour` was shown where no price is stated."""
    console = Console(file=StringIO(), width=150, color_system=None)
    console.print(render_top(read_view(GATEWAY), None, 1.0))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "$0.00" not in text
    assert "no price stated" in text


def test_a_pool_name_is_text_and_never_markup() -> None:
    page = GATEWAY.replace('pool="h100"', 'pool="[/] [red]x"')
    console = Console(file=StringIO(), width=200, color_system=None)
    console.print(render_top(read_view(page), None, 1.0))
    assert isinstance(console.file, StringIO)
    assert "[/] [red]x" in console.file.getvalue()
