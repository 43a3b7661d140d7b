"""What the templates make is what those read who get it: Waypost, systemd, nginx where it is there."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from mailcore.boot import BOOT
from mailcore.config.load import load
from mailcore.config.nodes import database_of
from mailcore.replication.patroni import judge_config
from tests.ansible.playing import COLLECTION, defaults, play
from tests.nodes.patroni_cluster import DYNAMIC
from tests.test_tidy import ROOT

UNITS = ("core", "portal", "watch", "webhooks", "worker", "beat", "redis", "firewall")
EXPOSURE_MAX = 2.0
EXPOSURE_OF_SHARDS_MAX = 2.2  # it gives directories the setgid bit, and a node opens port 25 itself
ROUTES = {"Example.org": "smtp:[192.0.2.1]:25", "*": "bulk"}
SETTINGS: dict[str, Any] = {
    "transports": {"bulk": {"process_limit": 7, "destinations": {".example.net": {"destination_rate_delay": 1.5}}}},
    "receiver": {"error_limit": 9},
    "export": {"enabled": False},
}


ELSEWHERE: dict[str, object] = {  # HTTPS on another port, a database on another host, a time zone
    "waypost_https_listen": ["192.0.2.1:8443", "443"],
    "waypost_database": "other",
    "waypost_database_url": "postgresql://u:secret@192.0.2.7:5432/waypost",
    "waypost_time_zone": "Europe/Berlin",
}
BY_NAME: dict[str, object] = {
    "waypost_database": "other",
    "waypost_database_url": "postgresql://u:secret@db.example.org/waypost",
}
PACKAGE: dict[str, object] = {"waypost_package": True}
NODE: dict[str, object] = {"waypost_shard": "north", "waypost_nodes_password": "aSecret-1"}
SHARED: dict[str, object] = {**NODE, "waypost_database": "nodes", "waypost_database_password": "ofThePortals-1"}
SERVERS = ("db1.example", "db2.example", "192.0.2.53")
NETWORKS = ["192.0.2.0/24", "2001:db8::/64"]
BY_ADDRESS = "host=192.0.2.7,2001:db8::7 port=5433 dbname=mail user=waypost"


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Writes every template for hosts with other variables in one play; returns the directory of each host's files."""
    group = subprocess.run(["id", "-gn"], capture_output=True, text=True, check=True).stdout.strip()
    found = {
        name: tmp_path_factory.mktemp(name)
        for name in (
            "rendered",
            "elsewhere",
            "by_name",
            "package",
            "node",
            "shared",
            "by_address",
            "shards",
            "server",
            "db2",
        )
    }
    common = {
        "collection": str(COLLECTION),
        "templates": [str(template) for template in sorted(COLLECTION.glob("roles/*/templates/*.j2"))],
        "waypost_version": "0.0.1",
        "waypost_listen": ["0.0.0.0:25", "[::]:25"],
        "waypost_listeners": [{"address": "0.0.0.0:465", "purpose": "submission", "tls": "implicit"}],
        "waypost_dkim_keys": [{"domain": "example.org", "selector": "2026a", "key": "keys/a.pem"}],
        "waypost_routes": ROUTES,
        "waypost_settings": {**SETTINGS, "control": {"group": group}},
        "waypost_firewall_admin_networks": ["192.0.2.0/24", "2001:db8::/32"],
    }
    host = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    hosts = {
        name: {**host, **defaults(), "place": str(found[name]), **common, **more}
        for name, more in (
            ("rendered", {}),
            ("elsewhere", ELSEWHERE),
            ("by_name", BY_NAME),
            ("package", PACKAGE),
            ("node", NODE),
            ("shared", SHARED),
            ("by_address", {**SHARED, "waypost_nodes_database": BY_ADDRESS}),
            ("shards", {"waypost_settings": {"core": {"shards": 2}, "control": {"group": group}}}),
            ("db2", {}),
            ("server", {"queue_database_portal_password": "ofThePortals-1", "queue_database_networks": NETWORKS}),
        )
    }
    others = {"db2": {"queue_database_address": SERVERS[1]}, "db3": {"queue_database_address": SERVERS[2]}}
    hosts["server"]["queue_database_address"] = SERVERS[0]
    children = {
        "rendering": {"hosts": hosts},
        "waypost_nodes": {"hosts": {"node": {}, "shared": {}, "by_address": {}}},
        "queue_database": {"hosts": {"server": {}, **others}},
    }
    done = play(
        tmp_path_factory.mktemp("play"), str(ROOT / "tests/ansible/render.yml"), {"all": {"children": children}}
    )
    assert done.returncode == 0, done.stdout
    for place in found.values():
        for name, text in json.loads((place / "made.json").read_text()).items():
            (place / Path(name).name.removesuffix(".j2")).write_text(text)
    return found


@pytest.fixture(scope="module")
def rendered(places: dict[str, Path]) -> Path:
    return places["rendered"]


@pytest.fixture(scope="module")
def elsewhere(places: dict[str, Path]) -> Path:
    return places["elsewhere"]


def test_the_configuration_is_read_by_waypost(rendered: Path) -> None:
    settings = load(rendered / "portal.toml")
    assert settings.receiver.listen == ("0.0.0.0:25", "[::]:25")
    assert settings.receiver.error_limit == 9
    assert settings.transports["bulk"].destinations == {".example.net": {"destination_rate_delay": 1.5}}
    assert settings.routes == {"example.org": "smtp:[192.0.2.1]:25", "*": "bulk"}
    assert settings.export.enabled is False
    assert str(settings.home) == "/var/lib/waypost"


def test_a_listener_reaches_settings_sockets_and_the_firewall(rendered: Path) -> None:
    settings = load(rendered / "waypost.toml", look_at_certificate=False)
    (listener,) = settings.listener
    assert (listener.address, listener.tls, listener.auth) == ("0.0.0.0:465", "implicit", "required")
    assert "tcp dport { 25, 465 } accept" in (rendered / "firewall.nft").read_text()


def test_a_key_of_dkim_is_where_the_deliverers_read_it(rendered: Path) -> None:
    (key,) = load(rendered / "waypost.toml", look_at_certificate=False).dkim
    assert key.key == "/etc/waypost/dkim/example.org.2026a.pem"
    assert "dkim" not in (rendered / "portal.toml").read_text()
    tasks = yaml.safe_load((COLLECTION / "roles/core/tasks/main.yml").read_text())
    names = [task["name"] for task in tasks]
    assert names.index("Copy the keys of DKIM") < names.index("Write the configuration"), "it is checked with its keys"
    (copy,) = [task["ansible.builtin.copy"] for task in tasks if task["name"] == "Copy the keys of DKIM"]
    assert (copy["group"], copy["mode"]) == ("waypost-deliverer", "0640")


def test_a_stop_of_the_core_lasts_ten_seconds_at_most(rendered: Path) -> None:
    """It is killed, so that nothing is waited for; what systemd does not see would keep clients waiting for 90 s."""
    unit = (rendered / "waypost-core.service").read_text().splitlines()
    assert {"KillSignal=SIGKILL", "TimeoutStopSec=10"} <= set(unit)


def test_the_key_is_for_the_core_alone(rendered: Path) -> None:
    assert "tls_key" in (rendered / "waypost.toml").read_text()
    assert "tls_" not in (rendered / "portal.toml").read_text()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
@pytest.mark.parametrize(
    ("host", "unit"), [*(("rendered", unit) for unit in UNITS), ("node", "core"), ("shards", "core")]
)
def test_a_service_can_do_little(places: dict[str, Path], host: str, unit: str) -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(places[host] / f"waypost-{unit}.service")],
        capture_output=True,
        text=True,
        check=False,
    )
    words = [line for line in done.stdout.splitlines() if "Overall exposure level" in line]
    assert words, done.stderr
    exposure = float(words[0].partition(": ")[2].split()[0])
    assert exposure <= (EXPOSURE_MAX if host == "rendered" else EXPOSURE_OF_SHARDS_MAX), done.stdout
    assert "Unknown" not in done.stderr, done.stderr


def test_the_socket_listens_where_the_settings_say(rendered: Path) -> None:
    lines = (rendered / "waypost-core.socket").read_text().splitlines()
    assert [line for line in lines if line.startswith("ListenStream=")] == [
        "ListenStream=0.0.0.0:25", "ListenStream=[::]:25", "ListenStream=0.0.0.0:465",
    ]  # fmt: skip


def test_the_firewall_lets_in_mail_from_all_and_the_rest_from_administrators(rendered: Path) -> None:
    rules = (rendered / "firewall.nft").read_text()
    assert "tcp dport { 25, 465 } accept" in rules
    assert "ip saddr 192.0.2.0/24 tcp dport { 22, 443 } accept" in rules
    assert "ip6 saddr 2001:db8::/32 tcp dport { 22, 443 } accept" in rules


def test_https_on_another_port_is_in_the_address_of_the_portal(rendered: Path, elsewhere: Path) -> None:
    """Django compares the Origin of a form with it: without the port, every sign-in is refused."""
    assert load(rendered / "portal.toml").portal.public_url == "https://mail.example"
    assert load(elsewhere / "portal.toml").portal.public_url == "https://mail.example:8443"
    assert "proxy_set_header Host $http_host;" in (elsewhere / "site").read_text()


def allowed(unit: Path) -> list[str]:
    """What the unit says about addresses."""
    return [line for line in unit.read_text().splitlines() if line.startswith("IPAddress")]


def test_the_portal_may_reach_a_database_on_another_host(places: dict[str, Path]) -> None:
    unit = "waypost-portal.service"
    assert allowed(places["rendered"] / unit) == ["IPAddressDeny=any", "IPAddressAllow=localhost"]
    by_address = allowed(places["elsewhere"] / unit)
    assert by_address == ["IPAddressDeny=any", "IPAddressAllow=localhost 192.0.2.7"]
    assert allowed(places["by_name"] / unit) == []
    assert "secret" not in (places["by_name"] / unit).read_text()


def test_the_time_zone_of_the_host_is_that_of_the_reports(rendered: Path, elsewhere: Path) -> None:
    assert load(rendered / "portal.toml").reports.zone == "UTC"
    assert load(elsewhere / "waypost.toml", look_at_certificate=False).reports.zone == "Europe/Berlin"
    assert load(elsewhere / "portal.toml").reports.zone == "Europe/Berlin"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
@pytest.mark.parametrize(("name", "exposure_max"), [("nginx", 3.0), ("postgresql", 3.5)])
def test_the_services_beside_ours_can_do_little(rendered: Path, tmp_path: Path, name: str, exposure_max: float) -> None:
    """Without it, systemd rates both 9.6. They begin as root, so they cannot be as strict as ours."""
    unit = tmp_path / f"{name}.service"
    restrictions = (rendered / f"{name}-sandbox.conf").read_text()
    unit.write_text(f"[Service]\nType=forking\nExecStart=/usr/bin/true\n{restrictions}")
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    (line,) = [line for line in done.stdout.splitlines() if "Overall exposure level" in line]
    assert float(line.partition(": ")[2].split()[0]) <= exposure_max, done.stdout
    assert "Unknown" not in done.stderr, done.stderr


def test_with_the_package_only_the_environment_is_another(places: dict[str, Path]) -> None:
    """The same units, settings and files; what differs are paths below the release and below the package."""
    names = {path.name for path in places["rendered"].iterdir()}
    assert {path.name for path in places["package"].iterdir()} == names
    for name in names - {"made.json"}:
        ours = (places["package"] / name).read_text()
        assert "/opt/waypost" not in ours, name
        wheels = (places["rendered"] / name).read_text()
        assert ours == wheels.replace("/opt/waypost/0.0.1/", "/usr/lib/waypost/").replace(
            "/opt/waypost/current/", "/usr/lib/waypost/"
        )


def test_a_node_is_told_of_its_shard_and_of_all_servers_of_its_database(places: dict[str, Path]) -> None:
    settings = load(places["node"] / "waypost.toml", look_at_certificate=False)
    nodes = settings.nodes
    assert (nodes.node, nodes.shard, nodes.password_file) == ("node", "north", "/etc/waypost/database-password")
    assert nodes.patroni == tuple(f"https://{server}:8008" for server in SERVERS)
    database = database_of(nodes.database)
    assert database.hosts == tuple((server, 5432) for server in SERVERS)
    assert (database.tls_mode, database.tls_root) == ("verify-full", "/etc/waypost/database-authority.pem")
    assert load(places["rendered"] / "waypost.toml", look_at_certificate=False).nodes.is_on is False


def test_the_portals_of_nodes_share_the_database_with_a_user_of_their_own(places: dict[str, Path]) -> None:
    for name in ("portal.toml", "waypost.toml"):  # doctor and backup read the latter
        portal = load(places["shared"] / name, look_at_certificate=False).portal
        assert (portal.database_url, portal.database_password_file) == ("nodes", "/etc/waypost/portal-password"), name
        assert "ofThePortals-1" not in (places["shared"] / name).read_text()
    assert "DATABASE_URL" not in (places["shared"] / "environment").read_text(), "it would count above the settings"
    assert "DATABASE_URL" in (places["node"] / "environment").read_text()
    assert load(places["node"] / "portal.toml").portal.database_url == ""
    assert allowed(places["shared"] / "waypost-portal.service") == [], "its servers have names"
    by_address = allowed(places["by_address"] / "waypost-portal.service")
    assert by_address == ["IPAddressDeny=any", "IPAddressAllow=localhost 192.0.2.7 2001:db8::7"]


def test_the_servers_let_the_portals_in_from_the_nodes_with_tls_and_a_password(places: dict[str, Path]) -> None:
    lines = yaml.safe_load((places["server"] / "config.yml").read_text())["postgresql"]["pg_hba"]
    for user in ("waypost", "waypost_portal"):
        found = [line for line in lines if line.split()[2] == user]
        assert found == [f"hostssl waypost {user} {network} scram-sha-256" for network in NETWORKS]
    without = yaml.safe_load((places["db2"] / "config.yml").read_text())["postgresql"]["pg_hba"]
    assert not [line for line in without if "waypost_portal" in line]


def test_systemd_does_not_listen_for_a_node_which_may_itself(places: dict[str, Path]) -> None:
    """A client of a spare would wait in the backlog of systemd, and not go to the node that takes mail."""
    unit = (places["node"] / "waypost-core.service").read_text()
    assert "waypost-core.socket" not in unit
    assert unit.count("CAP_KILL CAP_NET_BIND_SERVICE\n") == 2
    alone = (places["rendered"] / "waypost-core.service").read_text()
    assert "Requires=waypost-core.socket" in alone
    assert "CAP_NET_BIND_SERVICE" not in alone


def test_the_core_of_several_shards_may_make_their_directories(places: dict[str, Path]) -> None:
    """It gives them the setgid bit while it runs, which RestrictSUIDSGID refuses: no shard was ever started."""
    units = {name: (places[name] / "waypost-core.service").read_text() for name in ("rendered", "node", "shards")}
    restricted = [name for name, unit in units.items() if "RestrictSUIDSGID=yes" in unit.splitlines()]
    assert restricted == ["rendered"]


def test_the_servers_of_a_database_keep_mail_on_two(places: dict[str, Path]) -> None:
    """What docs/nodes.md and the tests over Patroni have."""
    config = yaml.safe_load((places["server"] / "config.yml").read_text())
    told = config["bootstrap"]["dcs"]
    assert judge_config(json.dumps(told).encode()) is None
    tested = {key: value for key, value in DYNAMIC.items() if key != "postgresql"}
    assert tested == {key: told[key] for key in tested}
    assert "data-checksums" in config["bootstrap"]["initdb"]
    assert config["etcd"]["hosts"] == [f"{server}:2379" for server in SERVERS]
    assert not [line for line in config["postgresql"]["pg_hba"] if line.split()[0] not in ("local", "hostssl")]


def test_patroni_of_debian_12_does_not_use_the_api_over_which_a_primary_that_was_cut_off_takes_its_lock_back() -> None:
    systems = yaml.safe_load((COLLECTION / "roles/queue_database/vars/main.yml").read_text())["queue_database_systems"]
    assert {name: system["api"] for name, system in systems.items()} == {"Debian-12": "etcd", "Debian-13": "etcd3"}


def test_etcd_answers_nobody_without_a_certificate(places: dict[str, Path]) -> None:
    lines = (places["server"] / "etcd").read_text().splitlines()
    settings = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    assert settings["ETCD_INITIAL_CLUSTER"] == ",".join(
        f"{name}=https://{server}:2380" for name, server in zip(("server", "db2", "db3"), SERVERS, strict=True)
    )
    assert settings["ETCD_CLIENT_CERT_AUTH"] == settings["ETCD_PEER_CLIENT_CERT_AUTH"] == "true"
    assert not [value for value in settings.values() if "http://" in value]
    assert settings["ETCD_ENABLE_V2"] == "true"


def test_the_service_is_told_the_name_of_the_boot_which_it_cannot_see(rendered: Path) -> None:
    unit = (rendered / "waypost-core.service").read_text().splitlines()
    assert "ProcSubset=pid" in unit
    assert f"Environment={BOOT}=%b" in unit
