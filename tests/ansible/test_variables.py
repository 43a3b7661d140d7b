"""What is said of wrong variables, each by its name, and of a release's file and a certificate."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import tarfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from mailcore.bounds import bounds_by_name
from mailcore.config.settings import SECTIONS
from tests.ansible.playing import COLLECTION, little_release
from tests.config.test_load import certificate
from tests.test_tidy import ROOT


def loaded() -> ModuleType:
    """As Ansible does: it is in no package."""
    spec = importlib.util.spec_from_file_location("variables", COLLECTION / "plugins" / "filter" / "variables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FILTERS: dict[str, Any] = loaded().FilterModule().filters()
DEFAULTS = yaml.safe_load((COLLECTION / "roles/waypost/defaults/main.yml").read_text()) | {
    "waypost_version": "0.1.0",
    "waypost_core_version": "0.1.0",
    "waypost_portal_version": "0.1.0",
    "waypost_hostname": "mx1.example.org",
    "waypost_public_name": "mx1.example.org",
    "waypost_node": "mx1",
    "waypost_nodes_database": "",
    "waypost_nodes_patroni": [],
}
CONFIGURATION = """home = "/var/lib/waypost"
[receiver]
listen = ["0.0.0.0:25"]
tls_certificate = "/etc/waypost/tls/certificate.pem"
tls_key = "/etc/waypost/tls/key.pem"
[relay]
networks = ["127.0.0.0/8"]
"""


def faults(**given: object) -> list[str]:
    found: list[str] = FILTERS["variable_faults"](DEFAULTS | given)
    return found


def test_the_bounds_of_settings_are_those_of_the_settings() -> None:
    """The filter has them itself, because it runs where the package is not installed."""
    module = loaded()
    of_settings = {name: SECTIONS[key[0]] for key, name in module.OF.items() if name in module.BOUNDS}
    assert set(of_settings) == {"waypost_receiver_processes", "waypost_deliverer_processes"}
    for name, section in of_settings.items():
        bounds = bounds_by_name(section)["processes"]
        assert module.BOUNDS[name] == (bounds.low, bounds.high)


@pytest.mark.parametrize(
    ("name", "value"),
    [("waypost_core_version", "0.0.9"), ("waypost_portal_version", "0.0.9"), ("waypost_home", "/srv/waypost")],
)
def test_what_a_package_cannot_do_is_refused(name: str, value: str) -> None:
    assert faults(**{name: value}) == []
    assert faults(waypost_package=True) == []
    (fault,) = faults(waypost_package=True, **{name: value})
    assert fault.startswith(f"{name} is {value}, but ")
    assert "waypost_package to false" in fault


def test_packages_are_needed_that_the_host_does_not_have(tmp_path: Path) -> None:
    deb, other, missing = (str(tmp_path / f"{name}_0.1.0+deb12_amd64.deb") for name in ("waypost", "other", "missing"))
    Path(deb).write_bytes(b"!<arch>\ndebian-binary")
    Path(other).write_bytes(b"PK")
    assert FILTERS["package_faults"]([deb], [], True) == []
    assert FILTERS["package_faults"]([deb, missing], [Path(missing).name], True) == [], "it is installed"
    (fault,) = FILTERS["package_faults"]([deb, missing], [], True)
    assert (
        fault
        == f"waypost_version is wrong: {missing}: there is no such file here; allowed: packages that ./make-release --deb made"
    )
    (fault,) = FILTERS["package_faults"]([other], [], True)
    assert "it is not a Debian package" in fault
    (fault,) = FILTERS["package_faults"]([deb], [], False)
    assert "Debian 12 and 13 only" in fault


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="no dpkg-deb here")
def test_the_core_of_a_package_checks_the_settings(tmp_path: Path) -> None:
    site = tmp_path / "tree/usr/lib/waypost/venv/lib/python3.11/site-packages"
    shutil.copytree(ROOT / "mailcore", site / "mailcore", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "tree/DEBIAN").mkdir()
    (tmp_path / "tree/DEBIAN/control").write_text(
        "Package: waypost\nVersion: 1\nArchitecture: all\nMaintainer: A <a@example.org>\nDescription: a test\n"
    )
    deb = tmp_path / "waypost.deb"
    subprocess.run(["dpkg-deb", "-Znone", "--build", tmp_path / "tree", deb], check=True, capture_output=True)
    assert FILTERS["configuration_faults"](CONFIGURATION, str(deb)) == []
    (fault,) = FILTERS["configuration_faults"](CONFIGURATION.replace("127.0.0.0/8", "127.0.0.0/80"), str(deb))
    assert fault.startswith("waypost_relay_networks is wrong: ")


def test_the_defaults_are_right() -> None:
    assert faults() == []


@pytest.mark.parametrize("name", DEFAULTS)
def test_none_is_a_value_of_nothing(name: str) -> None:
    assert faults(**{name: None}) == [f"{name} has no value; set a value or remove it"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("waypost_version", ".."),
        ("waypost_version", "../../x"),
        ("waypost_core_version", ""),
        ("waypost_hostname", "mx 1"),
        ("waypost_public_name", "a/b"),
        ("waypost_listen", "0.0.0.0:25"),
        ("waypost_listen", []),
        ("waypost_listen", ["25"]),
        ("waypost_listen", ["0.0.0.0:99999"]),
        ("waypost_listen", ["0.0.0.0:0"]),
        ("waypost_listen", ["999.0.0.1:25"]),
        ("waypost_listen", ["0.0.0.0:25", "0.0.0.0:25"]),
        ("waypost_listeners", ["0.0.0.0:587"]),
        ("waypost_listeners", [{"purpose": "submission"}]),
        ("waypost_listeners", [{"address": "0.0.0.0:25"}]),
        ("waypost_dkim_keys", [{"domain": "example.org", "selector": "a"}]),
        ("waypost_dkim_keys", [{"domain": "../etc", "selector": "a", "key": "x.pem"}]),
        ("waypost_dkim_keys", ["example.org"]),
        ("waypost_https_listen", ["25"]),
        ("waypost_https_listen", ["https"]),
        ("waypost_https_listen", []),
        ("waypost_receiver_processes", 0),
        ("waypost_deliverer_processes", 65),
        ("waypost_relay_networks", "10.0.0.0/8"),
        ("waypost_routes", ["smtp"]),
        ("waypost_settings", {"scheduler": None}),
        ("waypost_settings", {"queue_directory": {}}),
        ("waypost_settings", {"portal": {"listen": "127.0.0.1:9000"}}),
        ("waypost_settings", {"nodes": {"shard": "north"}}),
        ("waypost_nodes_patroni", "http://db1:8008"),
        ("waypost_nodes_password", "two words"),
        ("waypost_database_password", "two words"),
        ("waypost_portal_key", "short"),
        ("waypost_settings", {"portal": {"database_password_file": "/etc/x"}}),
        ("waypost_settings", {"receiver": {"listen": ["0.0.0.0:26"]}}),
        ("waypost_home", "var"),
        ("waypost_home", "/"),
        ("waypost_home", "/home/mail"),
        ("waypost_home", "/tmp"),
        ("waypost_home", "/srv/my mail"),
        ("waypost_home", "/srv/../etc"),
        ("waypost_redis_memory_mb", -1),
        ("waypost_releases_kept", -1),
        ("waypost_redis_password", "two words"),
        ("waypost_log_keep_days", -1),
        ("waypost_journal_mb", 0),
        ("waypost_time_zone", "Europe/Atlantis"),
        ("waypost_database_url", "postgresql://u:p@h/n"),
        ("waypost_firewall_admin_networks", ["the office"]),
        ("waypost_firewall_admin_networks", []),
        ("waypost_firewall_ports", [70_000]),
    ],
)
def test_a_wrong_value_is_told_with_its_name(name: str, value: object) -> None:
    told = faults(**{name: value})[0]
    assert told.startswith(name)
    assert any(part in told for part in ("allowed: ", " must be ", "; name the networks", "; remove it"))


def test_reports_need_a_portal() -> None:
    (told,) = faults(waypost_portal=False)
    assert told.startswith("waypost_reports is true, but waypost_portal is false; ")
    assert faults(waypost_portal=False, waypost_reports=False) == []


def test_the_portals_have_another_password_than_the_nodes() -> None:
    """With that of the nodes it would read all mail."""
    (told,) = faults(waypost_database_password="aSecret-1", waypost_nodes_password="aSecret-1")
    assert told.startswith("waypost_database_password is waypost_nodes_password; set another one")
    assert "aSecret-1" not in told


def test_a_secret_is_not_told() -> None:
    for name, value in (
        ("waypost_redis_password", "my secret"),
        ("waypost_nodes_password", "my secret"),
        ("waypost_database_password", "my secret"),
        ("waypost_portal_key", "my secret"),
        ("waypost_database_url", "my secret"),
    ):
        told = faults(**{name: value, "waypost_database": "other"})
        assert told
        assert not [each for each in told if "secret" in each]


def test_a_certificate_must_be_that_of_its_key(tmp_path: Path) -> None:
    first, other = certificate("mx1.example.org")[:2], certificate("mx1.example.org")[:2]
    for name, content in (("c.pem", first[0]), ("k.pem", first[1]), ("other.pem", other[1]), ("none.pem", b"-")):
        (tmp_path / name).write_bytes(content)
    of = FILTERS["certificate_faults"]

    def told(*names: str) -> str:
        return "; ".join(of(*(str(tmp_path / name) if name else "" for name in names)))

    assert told("", "") == ""
    assert told("c.pem", "k.pem") == ""
    assert "neither" in told("c.pem", "")
    assert "there is no file" in told("c.pem", "nowhere.pem")
    assert "do not match" in told("c.pem", "other.pem")
    assert "do not match" in told("none.pem", "k.pem")


def test_a_release_that_is_cut_short_is_told(tmp_path: Path) -> None:
    file = little_release(tmp_path, "0.0.1") / "waypost-0.0.1-cp311-x86_64.tar"
    of = FILTERS["release_faults"]
    assert of(str(file), "waypost_version 0.0.1") == []
    whole = file.read_bytes()
    sums = whole.index(b"SHA256SUMS")
    for cut in (0, 700, sums, len(whole) // 2):  # at the border of a member too, where tar itself says nothing
        file.write_bytes(whole[:cut])
        (told,) = of(str(file), "waypost_version 0.0.1")
        assert "make it again" in told
    wheel, sums_file = tmp_path / "waypost-0.0.1-py3-none-any.whl", tmp_path / "SHA256SUMS"
    for lacking in ([wheel], [sums_file]):  # ended as a tar ends
        with tarfile.open(file, "w") as release:
            for each in lacking:
                release.add(each, each.name)
        (told,) = of(str(file), "waypost_version 0.0.1")
        assert "is incomplete or not a release" in told
    (told,) = of(f"{file}.gone", "waypost_version 0.0.1")
    assert "there is no file" in told


def test_the_core_of_the_release_says_what_it_will(tmp_path: Path) -> None:
    file = str(little_release(tmp_path, "0.0.1") / "waypost-0.0.1-cp311-x86_64.tar")
    of = FILTERS["configuration_faults"]
    assert of(CONFIGURATION, file) == []
    told = of(
        CONFIGURATION.replace("127.0.0.0/8", "127.0.0.0/99") + "[scheduler]\nmaximal_queue_lifetime = 'abc'\n", file
    )
    assert [each.partition(" ")[0] for each in told] == ["waypost_relay_networks", "waypost_settings"]
    assert all(" must be " in each for each in told)
    assert not [each for each in told if "waypost.toml" in each]
