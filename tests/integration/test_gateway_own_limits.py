"""Limits that a client sets in headers are its own: they change no price, no alert and no number of replicas."""

import asyncio
import time
import urllib.request
from pathlib import Path

import pytest

from ports import free_ports

pytest.importorskip("httptools", reason='the gateway is an extra: pip install "penstock[gateway]"')

from gateway_stack import Running, chat, running
from penstock.prometheus_text import read_samples

HASTY = "x-penstock-tenant: batch\r\nx-llm-d-slo-ttft-ms: 1\r\nx-penstock-objective: critical\r\n"


def samples(stack: Running, name: str, **wanted: str) -> list[float]:
    with urllib.request.urlopen(f"http://{stack.stack.metrics}/metrics", timeout=5) as page:
        found = list(read_samples(page.read().decode()))
    return [value for metric, labels, value in found if metric == name and wanted.items() <= labels.items()]


@pytest.mark.parametrize("overload", ["serve", "refuse"])
@pytest.mark.parametrize("protocol", ["module", "ext_proc_buffered"])
def test_own_limits_change_no_price_and_no_alert(tmp_path: Path, protocol: str, overload: str) -> None:
    """Attack: limits of 1 ms raised the price of the class to 3.25 and were 150 missed SLOs of it."""
    metrics = f"127.0.0.1:{free_ports(1)[0]}"
    with running(tmp_path, endpoints=2, protocol=protocol, overload=overload, metrics=metrics, step_s=0.01) as stack:

        async def send() -> None:
            left = iter(range(150))

            async def client() -> None:
                for number in left:
                    await stack.ask(chat(stream=True), headers=HASTY if number % 2 else "")

            await asyncio.gather(*(client() for _ in range(4)))

        asyncio.run(send())
        time.sleep(1.5)
        assert max(samples(stack, "penstock_class_price")) == 1.0
        assert sum(samples(stack, "penstock_slo_requests_total", slo="missed")) == 0
        assert sum(samples(stack, "penstock_slo_requests_total", slo="kept")) >= 75
        assert sum(samples(stack, "penstock_refused_requests_total")) == 0
