"""Time to first token and time per token on the gateway's page are what its clients measure."""

import logging
from math import fsum
from pathlib import Path

import pytest

from ports import free_ports

pytest.importorskip("httptools", reason='the gateway is an extra: pip install "penstock[gateway]"')

from gateway_stack import running, until
from streaming_client import reported, request_body, stream_all

log = logging.getLogger(__name__)
REQUESTS, TOKENS = 60, 30


@pytest.mark.timed
def test_reported_times_are_those_of_clients(tmp_path: Path) -> None:
    """Steps of 40 ms, so that the scheduling of client and Envoy on a busy machine is small beside them."""
    place = f"127.0.0.1:{free_ports(1)[0]}"
    with running(tmp_path, endpoints=2, metrics=place, protocol="module", step_s=0.04) as stack:
        bodies = [("ab"[turn % 2], request_body("w " * (50 + turn), TOKENS, "llama")) for turn in range(REQUESTS)]
        answers = stream_all(stack.port, "/v1/completions", bodies, 6)
        until(lambda: reported(place)[0] == REQUESTS)
        _, ttft_s, tpot_s = reported(place)
    client_ttft_s = fsum(one.ttft_s for one in answers) / REQUESTS
    client_tpot_s = fsum(one.tpot_s for one in answers) / REQUESTS
    log.warning("TTFT %.4f %.4f, TPOT %.5f %.5f", ttft_s, client_ttft_s, tpot_s, client_tpot_s)
    assert tpot_s == pytest.approx(client_tpot_s, rel=0.02)
    assert ttft_s == pytest.approx(client_ttft_s, rel=0.02, abs=0.005)
