"""What Envoy notes of responses for the receipts, and that it notes nothing without them."""

import json
from pathlib import Path

import pytest

from gateway_fakes import fleet
from penstock.gateway.envoy.answer_reader import SEEN
from penstock.gateway.envoy.config_files import envoy_files, standing_document
from penstock.gateway.envoy.envoy_config import ENDING, OUTCOME, EnvoySettings, PickProtocol


def written(receipts: str | None, protocol: PickProtocol = "ext_proc") -> str:
    settings = EnvoySettings(
        listen="127.0.0.1:8080", folder=Path("/run/penstock"), pickers=2, protocol=protocol, receipts=receipts
    )
    return json.dumps(standing_document(envoy_files(fleet(), settings, None)))


@pytest.mark.parametrize("protocol", ["ext_proc", "ext_proc_buffered"])
def test_responses_are_read_only_if_receipts_are_written(protocol: PickProtocol) -> None:
    without, with_receipts = written(None, protocol), written("receipts", protocol)
    assert "penstock.answer" not in without
    assert json.dumps(ENDING)[1:-1] in without
    assert with_receipts.count('"name": "penstock.answer"') == 1
    assert with_receipts.count(json.dumps(OUTCOME)[1:-1]) == 2  # one log per picker
    assert SEEN in OUTCOME
