"""Access files: parsing, errors, and configurations that Envoy accepts."""

import json
from pathlib import Path

import pytest

pytest.importorskip("httptools", reason='the gateway is an extra: pip install "penstock[gateway]"')

from penstock.errors import MissingExtra, UsageError
from penstock.gateway.envoy.authentication import access_filter
from penstock.gateway.envoy.config_files import envoy_files, static_document
from penstock.gateway.envoy.envoy_binary import envoy_program, validate
from penstock.gateway.envoy.envoy_config import PICK_PROTOCOLS, EnvoySettings, PickProtocol
from penstock.gateway.envoy.tracing import Traces
from penstock.gateway.inside_envoy.ended_ring import EndedRing
from penstock.gateway.inside_envoy.module_library import module_paths
from penstock.gateway.inside_envoy.module_table import write_module_table
from penstock.gateway.state.access_rules import Access, SignedTokens, TenantKey, access_of, read_access
from penstock.gateway.state.routed_fleet import RoutedFleet
from penstock.gateway.state.shared_tables import PICKER_STATE, shared_array
from penstock.gateway.supervisor import write_files
from penstock.routing.records import new_endpoints

KEYS = "version: 1\nkeys:\n  - {tenant: search, key: sk-0123456789abcdef}\n"
TOKENS = "version: 1\ntokens: {issuer: me, audiences: [penstock], jwks: 'https://login.example/keys'}\n"


def fleet() -> RoutedFleet:
    endpoints = new_endpoints(1)
    endpoints["step_s"] = 0.01
    return RoutedFleet(
        name="one",
        addresses=("127.0.0.1:9",),
        pools=("pool",),
        engines=("vllm",),
        models=("llama",),
        served=("llama",),
        classes=(),
        endpoints=endpoints,
    )


def written(folder: Path, text: str) -> Path:
    path = folder / "access.yaml"
    path.write_text(text)
    return path


def test_keys_and_tokens_are_read(tmp_path: Path) -> None:
    assert read_access(written(tmp_path, KEYS)) == Access(keys=(TenantKey(tenant="search", key="sk-0123456789abcdef"),))
    tokens = SignedTokens(issuer="me", audiences=("penstock",), jwks="https://login.example/keys")
    assert read_access(written(tmp_path, TOKENS)) == Access(tokens=tokens)
    assert tokens.server() == ("login.example", 443, True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("version: 1\n", "`keys` or `tokens`"),
        (KEYS + TOKENS.partition("\n")[2], "not both"),
        (KEYS + "  - {tenant: other, key: sk-0123456789abcdef}\n", "same key"),
        (KEYS.replace("sk-0123456789abcdef", "short"), r"access.yaml:3: .*16 characters"),
        (KEYS.replace("tenant:", "tenent:"), "access.yaml:3: `tenent` is not a key of .*did you mean `tenant`"),
        (TOKENS.replace("'https://login.example/keys'", "nowhere.json"), "nowhere.json.*https address"),
        (TOKENS.replace("'https://login.example/keys'", "access.yaml"), "no public keys.*JWKS"),
        (TOKENS.replace("https://login.example/keys", "http://login.example/keys"), "https.*anybody on the way"),
        (KEYS.replace("version: 1", "version: 9"), "version"),
        ("- 1\n", "keys"),
    ],
)
def test_a_mistake_is_one_line_that_says_the_fix(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        read_access(written(tmp_path, text))
    assert "\n" not in str(refused.value)
    assert "sk-0123456789abcdef" not in str(refused.value)


@pytest.mark.parametrize("protocol", PICK_PROTOCOLS)
@pytest.mark.parametrize("text", [KEYS, TOKENS])
def test_envoy_accepts_what_is_made_of_it(tmp_path: Path, protocol: PickProtocol, text: str) -> None:
    try:
        envoy_program()
    except MissingExtra:
        pytest.skip("Envoy is not here")
    settings = EnvoySettings(
        listen="127.0.0.1:18098",
        folder=tmp_path,
        pickers=1,
        protocol=protocol,
        module=module_paths(envoy_program()) if protocol == "module" else ("", ""),
        access_file=written(tmp_path, text),
        traces=Traces(address="http://127.0.0.1:4318/v1/traces"),
    )
    (tmp_path / "xds").mkdir()
    if settings.inside:
        shared_array(tmp_path / "pickers.table", PICKER_STATE, (settings.pickers,))
        EndedRing(tmp_path, settings.pickers)
        write_module_table(tmp_path, fleet(), settings.pickers, settings.min_silence_s, None)
    access = access_of(settings.access_file)
    files = envoy_files(fleet(), settings, access)
    write_files(tmp_path, fleet(), files)
    (tmp_path / "whole.json").write_text(json.dumps(static_document(files)))
    validate(tmp_path / "whole.json")


@pytest.mark.parametrize("address", ["127.0.0.1:4318", "https://collector:4318", "http://"])
def test_a_collector_is_an_http_address(address: str) -> None:
    with pytest.raises(UsageError, match="v1/traces"):
        Traces(address=address)


def test_a_token_is_looked_for_in_one_header_and_must_end() -> None:
    tokens = SignedTokens(issuer="me", audiences=("penstock",), jwks="https://login.example/keys")
    made = json.loads(json.dumps(access_filter(Access(tokens=tokens))))
    provider = made["typed_config"]["providers"]["tokens"]
    assert {place["name"] for place in provider["from_headers"]} == {"Authorization"}
    assert (provider["require_expiration"], provider["forward"]) == (True, False)
    assert provider["remote_jwks"]["cache_duration"] == "60s"
