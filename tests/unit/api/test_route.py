"""What a fleet file says is what pickers and Envoy are told."""

import json
import socket
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("httptools", reason='the gateway is an extra: pip install "penstock[gateway]"')

from penstock.api.arguments.fleet_argument import fleet_choice, placed_pool
from penstock.api.emulate import emulated_fleet, emulated_replicas
from penstock.api.options.gateway_options import GatewayOptions
from penstock.api.route import envoy_document, envoy_settings, route, routed_fleet
from penstock.errors import PenstockError, UsageError
from penstock.fleet.deployment import Parallelism
from penstock.fleet.pools import Fleet
from penstock.gateway.envoy.config_files import envoy_files, static_document
from penstock.gateway.envoy.envoy_binary import envoy_program, validate
from penstock.gateway.gateway_folder import gateway_folder
from penstock.gateway.state.routed_fleet import RoutedFleet
from penstock.gateway.supervisor import Supervisor, write_files
from penstock.simulation.loop.initial_visibility import endpoints_of
from penstock.simulation.replica import ReplicaPool

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "fleets" / "chat-h100-mi300x.yaml"


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return emulated_fleet(EXAMPLE, port=18000)


def test_an_endpoints_record_is_its_placement(fleet: Fleet) -> None:
    routed = routed_fleet(fleet)
    for index, address in enumerate(routed.addresses):
        pool = next(pool for pool in fleet.pools if address in pool.endpoints)
        replica = placed_pool(fleet, pool)
        record = routed.endpoints[index]
        assert record["step_s"] == replica.cost.step_s
        assert record["kv_tokens"] == replica.kv_tokens
        assert record["usd_per_s"] == pytest.approx((pool.usd_per_hour or 0) / 3600)
        assert routed.served[index] == pool.model
    assert len(set(routed.endpoints["vendor"])) == 2


def test_ranks_behind_one_address_are_one_endpoint_with_the_seats_and_the_cache_of_all(fleet: Fleet) -> None:
    two = tuple(replace(pool, split=replace(pool.split, dp=2)) for pool in fleet.pools)
    routed = routed_fleet(replace(fleet, pools=two))
    pools = [
        ReplicaPool(name=pool.name, replica=placed_pool(fleet, pool), replicas=pool.replicas, vendor=pool.vendor)
        for pool in two
    ]
    simulated = endpoints_of(pools)
    for name in ("kv_tokens", "max_running", "step_tokens", "max_context_tokens", "step_s"):
        assert routed.endpoints[name].tolist() == simulated[name].tolist(), name
    rank = placed_pool(fleet, two[0])
    assert routed.endpoints["kv_tokens"][0] == 2 * rank.kv_tokens
    assert routed.endpoints["max_context_tokens"][0] == rank.max_tokens


def test_what_is_emulated_is_what_is_routed_to(fleet: Fleet) -> None:
    assert [one.address for one in emulated_replicas(fleet)] == list(routed_fleet(fleet).addresses)
    assert all(one.simulated.block_tokens >= 16 for one in emulated_replicas(fleet))


def test_a_routed_fleet_is_read_as_it_was_written(fleet: Fleet, tmp_path: Path) -> None:
    routed = routed_fleet(fleet, 3)
    routed.write(tmp_path / "fleet.bin")
    read = RoutedFleet.read(tmp_path / "fleet.bin")
    assert (read.addresses, read.classes, read.generation) == (routed.addresses, routed.classes, 3)
    assert read.endpoints.tobytes() == routed.endpoints.tobytes()


@pytest.mark.parametrize("protocol", ["ext_proc", "ext_proc_buffered"])
def test_envoy_accepts_its_configuration(fleet: Fleet, tmp_path: Path, protocol: str) -> None:
    try:
        envoy_program()
    except Exception:  # noqa: BLE001 - whatever keeps Envoy away
        pytest.skip("Envoy is not here")
    two = replace(fleet.pools[1], model="llama-3.1-70b", replicas=2, split=Parallelism(tp=2), name="mi300x")
    for chosen in (fleet, replace(fleet, pools=(fleet.pools[0], two))):
        settings = envoy_settings(
            GatewayOptions(listen="127.0.0.1:18099", protocol=protocol, pickers=2, access_log="/dev/null"),
            folder=tmp_path,
        )
        (tmp_path / "xds").mkdir(exist_ok=True)
        files = envoy_files(routed_fleet(chosen), settings, None)
        write_files(tmp_path, routed_fleet(chosen), files)
        validate(tmp_path / "envoy.json")
        # Listeners, routes and clusters come from files, which `validate` does not read: as one document it does.
        (tmp_path / "whole.json").write_text(json.dumps(static_document(files)))
        validate(tmp_path / "whole.json")


def test_envoy_refuses_what_is_wrong(tmp_path: Path) -> None:
    try:
        envoy_program()
    except Exception:  # noqa: BLE001 - whatever keeps Envoy away
        pytest.skip("Envoy is not here")
    (tmp_path / "envoy.json").write_text(json.dumps({"nonsense": 1}))
    with pytest.raises(UsageError, match="nonsense"):
        validate(tmp_path / "envoy.json")
    socket = {"address": "10.0.0.1", "port_value": 99999}
    admin = {"admin": {"address": {"socket_address": socket}}}
    (tmp_path / "envoy.json").write_text(json.dumps(admin))
    with pytest.raises(UsageError) as refused:
        validate(tmp_path / "envoy.json")
    said = "Admin.Address.SocketAddress.PortValue: value must be less than or equal to 65535"
    assert str(refused.value) == f"Envoy rejects the configuration: {said}"


def test_the_printed_configuration_is_one_file_that_envoy_takes(fleet: Fleet, tmp_path: Path) -> None:
    options = GatewayOptions(protocol="ext_proc", only_pick="127.0.0.1:9002", listen="127.0.0.1:18098")
    text = envoy_document(fleet, options)
    assert "/run/penstock" not in text
    told = json.loads(text)["static_resources"]
    model, pickers = told["clusters"]
    assert len(model["load_assignment"]["endpoints"][0]["lb_endpoints"]) == 4
    place = pickers["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]["socket_address"]
    assert place == {"address": "127.0.0.1", "port_value": 9002}
    filters = told["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"]
    names = ["penstock.health", "penstock.strip", "penstock.pick", "envoy.filters.http.router"]
    assert [one["name"] for one in filters] == names
    try:
        envoy_program()
    except Exception:  # noqa: BLE001 - whatever keeps Envoy away
        pytest.skip("Envoy is not here")
    (tmp_path / "envoy.json").write_text(text)
    validate(tmp_path / "envoy.json")


def test_a_configuration_that_would_ask_nobody_is_not_printed(fleet: Fleet) -> None:
    with pytest.raises(UsageError, match="--only-pick"):
        envoy_document(fleet)


@pytest.mark.parametrize(
    ("listen", "more", "said"),
    [
        ("nowhere", {}, "host:port"),
        ("127.0.0.1:99999", {}, "host:port"),
        ("127.0.0.1:80", {"protocol": "http"}, "ext_proc_buffered"),
        ("127.0.0.1:80", {"protocol": "ext_authz"}, "is now --protocol module"),
        ("127.0.0.1:80", {"protocol": "module", "only_pick": "127.0.0.1:81"}, "leave --protocol module out"),
        ("127.0.0.1:80", {"pickers": 0}, "1 to 64"),
    ],
)
def test_what_cannot_be_meant_is_said(listen: str, more: dict[str, object], said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        envoy_settings(GatewayOptions(listen=listen, **more), tmp_path)  # type: ignore[arg-type]


@pytest.mark.parametrize("flag", ["receipts", "access_log"])
def test_a_folder_that_is_missing_is_said_before_anything_starts(fleet: Fleet, flag: str, tmp_path: Path) -> None:
    options = GatewayOptions(**{flag: str(tmp_path / "none" / "x")})  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=f"--{flag.replace('_', '-')}: the folder .*none does not exist; create it"):
        route(fleet, options)


def test_a_fleet_without_addresses_is_refused() -> None:
    with pytest.raises(UsageError, match="no endpoints"):
        routed_fleet(fleet_choice(EXAMPLE))
    with pytest.raises(UsageError, match="--port"):
        emulated_fleet(EXAMPLE)


def test_a_name_nobody_knows_is_refused_and_a_known_one_becomes_an_address(fleet: Fleet) -> None:
    def with_first(address: str) -> Fleet:
        first = replace(fleet.pools[0], endpoints=(address,))
        return replace(fleet, pools=(first, *fleet.pools[1:]))

    with pytest.raises(UsageError, match="has no address"):
        routed_fleet(with_first("no-such-host.invalid:8000"))
    assert routed_fleet(with_first("localhost:8000")).addresses[0] in {"127.0.0.1:8000", "[::1]:8000"}


def test_a_port_that_is_taken_is_refused_before_anything_starts(fleet: Fleet, tmp_path: Path) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        settings = envoy_settings(GatewayOptions(listen=f"127.0.0.1:{held.getsockname()[1]}"), folder=tmp_path)
        supervisor = Supervisor(settings, lambda made: routed_fleet(fleet, made), None)
        with pytest.raises(UsageError, match="choose another port"):
            supervisor._prepare()  # noqa: SLF001 - before a process is started
    assert not list(tmp_path.iterdir())


def test_a_gateway_that_cannot_start_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.gateway.gateway_folder._places", lambda: [tmp_path])
    with pytest.raises(PenstockError, match="nowhere"):
        route(tmp_path / "nowhere.yaml")
    assert not list(tmp_path.iterdir())


def test_only_folders_of_killed_gateways_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.gateway.gateway_folder._places", lambda: [tmp_path])
    for name in ("penstock-killed", "penstock-other", "elsewhere"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "keys.json").write_text("{}")
    (tmp_path / "penstock-killed" / "lock").touch()
    with gateway_folder(0) as first, gateway_folder(0) as second:
        left = {folder.name for folder in tmp_path.iterdir()}
        assert left == {first.name, second.name, "penstock-other", "elsewhere"}


def test_workers_are_those_of_the_pod_or_as_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.gateway.machine_limits.usable_processors", lambda: 3)
    assert envoy_settings(GatewayOptions(), folder=tmp_path).pickers == 3
    assert envoy_settings(GatewayOptions(workers=5), folder=tmp_path).pickers == 5
    with pytest.raises(UsageError, match="from 1 to 64"):
        envoy_settings(GatewayOptions(workers=65), folder=tmp_path)


def test_pickers_decide_where_the_module_cannot_and_the_log_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    program = tmp_path / "envoy"
    program.write_text("#!/bin/sh\necho 'envoy  version: abc/1.39.2/Clean/RELEASE/BoringSSL'\n")
    program.chmod(0o755)
    monkeypatch.setattr("penstock.gateway.envoy.envoy_binary.envoy_program", lambda: str(program))
    settings = envoy_settings(GatewayOptions(pickers=3), tmp_path)
    assert (settings.protocol, settings.pickers, settings.inside) == ("ext_proc_buffered", 3, False)
    (said,) = caplog.messages
    assert said.startswith(
        "the policy does not run inside Envoy, so Envoy asks pickers by ext_proc_buffered: the module needs Envoy"
    )
    caplog.clear()
    assert envoy_settings(GatewayOptions(), tmp_path, wakes_models=True).protocol == "ext_proc_buffered"
    assert "wakes no models" in caplog.text
    caplog.clear()
    assert envoy_settings(GatewayOptions(only_pick="127.0.0.1:9002"), tmp_path).protocol == "ext_proc"
    assert not caplog.messages
    with pytest.raises(UsageError, match=r"--protocol module: the module needs Envoy .*; or leave it out"):
        envoy_settings(GatewayOptions(protocol="module"), tmp_path)
