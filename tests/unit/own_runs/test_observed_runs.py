"""A hidden speed of emulated servers is found from what a gateway's endpoints served."""

import asyncio
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from emulated import ask, serve
from penstock.api.arguments.fleet_argument import fleet_choice
from penstock.api.calibrate import CalibrateAnswer, calibrate
from penstock.api.emulate import emulated_fleet, emulated_replicas
from penstock.errors import UsageError
from ports import free_ports
from stand_in_aiperf import replay

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "fleets" / "chat-h100-mi300x.yaml"
HIDDEN = 1.3
RATE, REQUESTS = 25.0, 540


def gateway_page(addresses: list[str]) -> ThreadingHTTPServer:
    """Serve the metrics page of a gateway that routes to these endpoints."""
    lines = [f'penstock_endpoint_up{{endpoint="{one}",pool="h100",model="llama-3.1-8b"}} 1.0' for one in addresses]
    page = ("\n".join(lines) + "\n").encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    return server


@pytest.mark.long
def test_a_hidden_speed_is_found_from_500_requests_of_a_gateway() -> None:
    control, port = free_ports(2)
    fleet = fleet_choice(EXAMPLE)
    pool = replace(fleet.pools[0], replicas=1)
    routes = tuple(replace(route, weights={pool.name: 1.0}) for route in fleet.routes)
    running = emulated_fleet(replace(fleet, pools=(pool,), routes=routes), port=port)
    gateway = gateway_page(list(running.pools[0].endpoints))
    found: list[CalibrateAnswer] = []

    async def script() -> None:
        assert (await ask(control, "/", {"fault": "slow", "times": HIDDEN})).status == 200
        lines = [{"timestamp": 1e3 * n / RATE, "input_length": 128, "output_length": 32} for n in range(REQUESTS)]
        load = asyncio.create_task(replay(f"http://127.0.0.1:{port}", "llama-3.1-8b", lines, 1))
        await asyncio.sleep(0.5)
        found.append(
            await asyncio.to_thread(
                calibrate,
                [f"http://127.0.0.1:{gateway.server_address[1]}"],
                "h100",
                "vllm",
                "bf16",
                "bf16",
                model="llama-3.1-8b",
                seconds=60,
            )
        )
        await load

    serve(emulated_replicas(running), control, script)
    gateway.shutdown()
    gateway.server_close()
    (run,) = (one.run for one in found[0].fitted.runs)
    assert run.completed >= 500
    assert found[0].steps.factor == pytest.approx(HIDDEN, rel=0.05)


def test_a_gateway_with_two_pools_asks_for_one() -> None:
    page = gateway_page(["127.0.0.1:1"])
    place = f"http://127.0.0.1:{page.server_address[1]}/metrics"
    with pytest.raises(UsageError, match="the gateway has no pool 'amd'; write one of h100"):
        calibrate([place], "h100", "vllm", "bf16", "bf16", model="llama-3.1-8b", pool="amd")
    page.shutdown()
    page.server_close()
