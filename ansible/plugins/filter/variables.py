"""Filters that check the operator's variables, on the control machine and before any host is changed.

Each filter returns a list of faults, which name the variable and the allowed values; [] if there is none. The core of the
release that is to be installed checks its settings.
"""

from __future__ import annotations

import ipaddress
import json
import re
import shutil
import ssl
import subprocess
import sys
import tarfile
import tempfile
import zoneinfo
from pathlib import Path
from typing import Any

SUMS = "SHA256SUMS"  # the last member of a release's file: if it is there, the file is complete
CONFIGURATION = "/etc/waypost/waypost.toml"
CHECK_S = 30.0
CHECK = """
import json, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
try:
    from mailcore.config.load import ConfigError, load_text
except ImportError:
    sys.exit(0)  # a release that cannot check a text; the host checks its file
try:
    load_text(Path(sys.argv[2]), sys.stdin.read())
except ConfigError as error:
    # An older release has only lines of text.
    faults = [[fault.section, fault.name, str(fault)] for fault in getattr(error, "faults", ())]
    print(json.dumps(faults or [["", "", line] for line in str(error).splitlines()]))
"""
OF = {  # section and name of a setting ("": any) -> the variable that sets it
    ("receiver", "listen"): "waypost_listen",
    ("", "listener"): "waypost_listeners",
    ("", "dkim"): "waypost_dkim_keys",
    ("receiver", "processes"): "waypost_receiver_processes",
    ("receiver", "hostname"): "waypost_hostname",
    ("deliverer", "processes"): "waypost_deliverer_processes",
    ("relay", "networks"): "waypost_relay_networks",
    ("relay", "domains"): "waypost_relay_domains",
    ("routes", ""): "waypost_routes",
    ("portal", "public_url"): "waypost_public_name",
    ("portal", "database_url"): "waypost_database",
    ("reports", "zone"): "waypost_time_zone",
    ("", "home"): "waypost_home",
    ("nodes", "database"): "waypost_nodes_database",
    ("nodes", "node"): "waypost_node",
    ("nodes", "shard"): "waypost_shard",
    ("nodes", "patroni"): "waypost_nodes_patroni",
}
LISTS = (
    "waypost_listen",
    "waypost_listeners",
    "waypost_dkim_keys",
    "waypost_relay_networks",
    "waypost_relay_domains",
    "waypost_https_listen",
    "waypost_nodes_patroni",
)
LISTS_OF_FIREWALL = ("waypost_firewall_admin_networks", "waypost_firewall_ports")
MAPPINGS = ("waypost_routes", "waypost_settings")
BOUNDS = {  # a test compares those of settings with mailcore.config.settings
    "waypost_receiver_processes": (1, 64),
    "waypost_deliverer_processes": (1, 64),
    "waypost_releases_kept": (0, 100),
    "waypost_redis_memory_mb": (1, 65_536),
    "waypost_log_keep_days": (1, 3_650),
    "waypost_journal_mb": (16, 1_000_000),
}
OURS = {  # set by variables and roles; other roles depend on them
    "receiver": ("listen", "tls_certificate", "tls_key"),
    "control": ("group",),
    "portal": ("listen", "public_url", "database_url", "database_password_file"),
    "nodes": ("database", "password_file", "node", "shard", "patroni"),
}
PACKAGE_HOME = "/var/lib/waypost"
DEB = b"!<arch>\n"  # ar(5)
VERSION = re.compile(r"[0-9][0-9A-Za-z.+]*")
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,253}[A-Za-z0-9])?")
ADDRESS = re.compile(r"(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<four>[0-9.]+)):(?P<port>[0-9]{1,5})")
PASSWORD = re.compile(r"[0-9A-Za-z_.~+/=-]{8,200}")
KEY = re.compile(r"[0-9A-Za-z_.~+/=-]{50,200}")  # Django warns of a shorter one
HOME = re.compile(r"(/[0-9A-Za-z_][0-9A-Za-z_.-]*)+")
# Directories that a unit sees differently (ProtectHome, PrivateTmp, PrivateDevices), or that do not keep files.
NO_HOMES = (
    "/home",
    "/root",
    "/tmp",  # noqa: S108 - refused
    "/var/tmp",  # noqa: S108
    "/run",
    "/dev",
    "/proc",
    "/sys",
    "/boot",
    "/etc",
    "/usr",
    "/opt/waypost",
)


def variable_faults(values: dict[str, Any]) -> list[str]:
    """Returns the faults of the variables. ``values``: all variables by name. A fault shows only the name of a secret."""
    faults = [f"{name} has no value; set a value or remove it" for name, value in values.items() if value is None]
    for name in (*LISTS, *LISTS_OF_FIREWALL):
        if values[name] is not None and not isinstance(values[name], list):
            faults.append(_wrong(name, values[name], "a list"))
    for name in MAPPINGS:
        if values[name] is not None and not isinstance(values[name], dict):
            faults.append(_wrong(name, values[name], "a mapping"))
    if faults:
        return faults  # the checks below need lists and mappings
    faults += _of_names(values)
    for name, (low, high) in BOUNDS.items():
        if not (re.fullmatch("-?[0-9]+", str(values[name])) and low <= int(values[name]) <= high):
            faults.append(f"{name} must be a whole number between {low} and {high} (got {str(values[name])[:100]!r})")
    faults += _of_sockets(values)
    faults += _of_dkim(values)
    faults += _of_secrets(values)
    faults += _of_firewall(values)
    faults += _of_package(values)
    if _true(values["waypost_reports"]) and not _true(values["waypost_portal"]):
        faults.append(
            "waypost_reports is true, but waypost_portal is false; reports need the portal: set both or neither"
        )
    for section, keys in values["waypost_settings"].items():
        if not isinstance(keys, dict):
            faults.append(_wrong(f"waypost_settings.{section}", keys, "a section, which maps keys to values"))
        for key in OURS.get(section, ()) if isinstance(keys, dict) else ():
            if key in keys:
                faults.append(
                    f"waypost_settings is wrong: {section}.{key} is set by a variable or a role; remove it from there"
                )
        if section in ("home", "routes") or str(section).endswith("_directory"):
            faults.append(
                f"waypost_settings is wrong: {section}; allowed: sections; routes are in waypost_routes, and directories "
                "below waypost_home"
            )
    return faults


def certificate_faults(certificate: str, key: str) -> list[str]:
    """Returns the faults of a certificate and its key, which are loaded as a server would load them; "" for no file."""
    if not certificate and not key:
        return []
    for name, path in (("waypost_tls_certificate", certificate), ("waypost_tls_key", key)):
        if not path:
            return ["only one of waypost_tls_certificate and waypost_tls_key is set; set both or neither"]
        if not Path(path).is_file():
            return [f"{name} is wrong: there is no file {path} here; allowed: a PEM file on the control machine"]
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", None) or error
        return [
            f"waypost_tls_certificate is wrong: {certificate} and {key} do not match ({why}); allowed: a certificate "
            "followed by its chain, and its key, both in PEM, the key without a passphrase"
        ]
    return []


def release_faults(file: str, name: str) -> list[str]:
    """Returns the faults of a file that ``make-release`` made; ``name`` is the variable that names its version."""
    try:
        with tarfile.open(file) as archive:
            names = [member.name.removeprefix("./") for member in archive if member.isfile()]
            told = archive.extractfile(SUMS) if names[-1:] == [SUMS] else None
            wanted = (
                [] if told is None else [line.split(None, 1)[1].strip() for line in told.read().decode().splitlines()]
            )
    except FileNotFoundError:
        return [f"{name} is wrong: there is no file {file} here; allowed: a release that ./make-release made"]
    except (OSError, EOFError, tarfile.TarError, ValueError, IndexError) as error:
        return [f"{name} is wrong: {file} cannot be read ({error}); make it again with ./make-release"]
    if not wanted or {*wanted, SUMS} != set(names):
        return [f"{name} is wrong: {file} is incomplete or not a release; make it again with ./make-release"]
    return []


def package_faults(files: list[str], there: list[str], is_supported: bool) -> list[str]:
    """Returns the faults of the packages that a host is to have. ``there``: names of the files of those that it has."""
    if not is_supported:
        return ["waypost_package is true, but there are packages for Debian 12 and 13 only; set it to false"]
    faults = []
    for file in files:
        if Path(file).name in there:
            continue
        try:
            with Path(file).open("rb") as opened:
                begins = opened.read(len(DEB))
        except OSError as error:
            begins = b""
            why = "there is no such file here" if isinstance(error, FileNotFoundError) else str(error)
        else:
            why = "it is not a Debian package"
        if begins != DEB:
            faults.append(f"waypost_version is wrong: {file}: {why}; allowed: packages that ./make-release --deb made")
    return faults


def configuration_faults(text: str, file: str) -> list[str]:
    """Checks this waypost.toml with the core of the release in ``file``. Returns [] also if this Python is too old for it."""
    if sys.version_info < (3, 11):  # noqa: UP036 - Ansible's, on the control machine
        return []
    with tempfile.TemporaryDirectory() as folder:
        path = _core_of_package(file, folder) if file.endswith(".deb") else _core_of_release(file, folder)
        if path is None:
            return []  # the host checks its file
        done = subprocess.run(  # noqa: S603 - our own file
            [sys.executable, "-I", "-S", "-c", CHECK, str(path), CONFIGURATION],
            input=text,
            capture_output=True,
            text=True,
            timeout=CHECK_S,
            check=False,
        )
    if done.returncode:
        return [f"the core in {file} cannot check the settings: {(done.stderr.strip().splitlines() or ['?'])[-1]}"]
    return [_with_variable(*fault) for fault in json.loads(done.stdout or "[]")]


def _core_of_release(file: str, folder: str) -> Path:
    with tarfile.open(file) as archive:
        wheel = next(member for member in archive if re.fullmatch(r"(\./)?waypost-[^/]+\.whl", member.name))
        content = archive.extractfile(wheel)
        assert content is not None
        path = Path(folder, wheel.name).resolve()
        path.write_bytes(content.read())
    return path


def _core_of_package(file: str, folder: str) -> Path | None:
    """Unpacks the core's modules; None on a control machine without dpkg."""
    dpkg = shutil.which("dpkg-deb")
    if dpkg is None:
        return None
    found = None
    with subprocess.Popen([dpkg, "--fsys-tarfile", file], stdout=subprocess.PIPE) as process:  # noqa: S603 - our own file
        assert process.stdout is not None
        with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
            for member in archive:
                _, is_module, rest = member.name.partition("/site-packages/mailcore/")
                content = archive.extractfile(member) if is_module and member.isfile() else None
                if content is not None:
                    found = Path(folder).resolve()
                    path = found / "mailcore" / rest
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content.read())
    return found


def _with_variable(section: str, setting: str, message: str) -> str:
    variable = OF.get((section, setting)) or OF.get((section, "")) or "waypost_settings"
    return f"{variable} is wrong: {message}"


def _wrong(name: str, value: Any, allowed: str) -> str:
    return f"{name} is wrong: {str(value)[:100]!r}; allowed: {allowed}"


def _true(value: Any) -> bool:
    return value is True or str(value).lower() in ("1", "true", "yes", "on", "y", "t")


def _of_names(values: dict[str, Any]) -> list[str]:
    faults = []
    for name in ("waypost_version", "waypost_core_version", "waypost_portal_version"):
        if not VERSION.fullmatch(str(values[name])):
            faults.append(_wrong(name, values[name], "letters, digits, . and +, beginning with a digit"))
    for name in ("waypost_hostname", "waypost_public_name"):
        if not HOST.fullmatch(str(values[name])):
            faults.append(_wrong(name, values[name], "a host's name"))
    zone = str(values["waypost_time_zone"])
    if zone and zone not in zoneinfo.available_timezones():
        faults.append(
            _wrong("waypost_time_zone", zone, "a name of the time zone database such as Europe/Berlin, or empty")
        )
    home = str(values["waypost_home"])
    if not HOME.fullmatch(home) or any(f"{home}/".startswith(f"{each}/") for each in NO_HOMES):
        allowed = f"an absolute path of letters, digits, _ . and -, not below {', '.join(NO_HOMES)}"
        faults.append(_wrong("waypost_home", home, allowed))
    return faults


def _of_dkim(values: dict[str, Any]) -> list[str]:
    needed, allowed = {"domain", "selector", "key"}, {"domain", "selector", "key", "subdomains"}
    return [
        _wrong(
            "waypost_dkim_keys",
            given,
            "mappings with domain, selector and key, perhaps subdomains; names without /",
        )
        for given in values["waypost_dkim_keys"]
        if not isinstance(given, dict)
        or not needed <= set(given) <= allowed
        or any(not given[name] or "/" in str(given[name]) for name in ("domain", "selector"))
    ]


def _of_sockets(values: dict[str, Any]) -> list[str]:
    faults = []
    taken: dict[int, str] = {}
    listeners = [each for each in values["waypost_listeners"] if isinstance(each, dict) and "address" in each]
    if len(listeners) < len(values["waypost_listeners"]):
        faults.append(_wrong("waypost_listeners", values["waypost_listeners"], "mappings, each with an address"))
    addresses = {**values, "waypost_listeners": [each["address"] for each in listeners]}
    for name in ("waypost_listen", "waypost_listeners", "waypost_https_listen"):
        is_mail = name != "waypost_https_listen"
        if not is_mail and not _true(values["waypost_portal"]):
            continue
        if not addresses[name] and name != "waypost_listeners":
            faults.append(_wrong(name, values[name], "one or more addresses"))
        for given in map(str, addresses[name]):
            port = _port_of(given if is_mail or ":" in given else f"0.0.0.0:{given}")
            if port is None:
                also = "" if is_mail else "a port, or "
                faults.append(
                    _wrong(
                        name, given, f"{also}address:port, IPv6 in brackets, as in 0.0.0.0:25, ports from 1 to 65535"
                    )
                )
            elif addresses[name].count(given) > 1 or taken.get(port, name) != name:
                faults.append(
                    _wrong(name, given, f"each port for one service, and each address once ({port} is taken)")
                )
            else:
                taken[port] = name
    return faults


def _port_of(address: str) -> int | None:
    match = ADDRESS.fullmatch(address)
    try:
        ipaddress.ip_address((match["six"] or match["four"]) if match else "")
    except ValueError:
        return None
    port = int(match["port"]) if match else 0
    return port if 0 < port < 65_536 else None


def _of_secrets(values: dict[str, Any]) -> list[str]:
    faults = []
    url = str(values["waypost_database_url"])
    if (values["waypost_database"] == "other") != bool(url):
        faults.append("waypost_database_url is wrong; allowed: a URL where waypost_database is other, and else nothing")
    elif url and not re.fullmatch(r"postgres(ql)?://[^\s'\"\\]+/[^\s'\"\\/]+", url):
        faults.append("waypost_database_url is wrong; allowed: postgresql://USER:PASSWORD@HOST:PORT/NAME")
    faults += [
        f"{name} is wrong; allowed: 8 to 200 letters, digits and _ . ~ + / = -, or nothing"
        for name in ("waypost_redis_password", "waypost_nodes_password", "waypost_database_password")
        if str(values[name]) and not PASSWORD.fullmatch(str(values[name]))
    ]
    if values["waypost_portal_key"] and not KEY.fullmatch(str(values["waypost_portal_key"])):
        faults.append("waypost_portal_key is wrong; allowed: 50 to 200 letters, digits and _ . ~ + / = -, or nothing")
    if values["waypost_database_password"] and values["waypost_database_password"] == values["waypost_nodes_password"]:
        faults.append(
            "waypost_database_password is waypost_nodes_password; set another one, because the portal must not read all mail"
        )
    return faults


def _of_package(values: dict[str, Any]) -> list[str]:
    if not _true(values["waypost_package"]):
        return []
    faults = [
        f"{name} is {values[name]}, but with waypost_package a host has one release, {values['waypost_version']}: remove "
        f"{name}, or set waypost_package to false"
        for name in ("waypost_core_version", "waypost_portal_version")
        if values[name] != values["waypost_version"]
    ]
    if values["waypost_home"] != PACKAGE_HOME:
        faults.append(
            f"waypost_home is {values['waypost_home']}, but the scripts of the package know {PACKAGE_HOME} only: remove "
            "waypost_home, or set waypost_package to false"
        )
    return faults


def _of_firewall(values: dict[str, Any]) -> list[str]:
    faults = []
    for given in values["waypost_firewall_admin_networks"]:
        try:
            ipaddress.ip_network(str(given))
        except ValueError as error:
            faults.append(f"waypost_firewall_admin_networks is wrong: {error}; allowed: networks such as 192.0.2.0/24")
    if not values["waypost_firewall_admin_networks"]:
        faults.append(
            "waypost_firewall_admin_networks is empty: no network could reach SSH; name the networks of the administrators"
        )
    for given in values["waypost_firewall_ports"]:
        if not (re.fullmatch("[0-9]{1,5}", str(given)) and 0 < int(given) < 65_536):
            faults.append(_wrong("waypost_firewall_ports", given, "ports, from 1 to 65535"))
    return faults


class FilterModule:
    """Names the filters for Ansible."""

    def filters(self) -> dict[str, Any]:
        return {
            "variable_faults": variable_faults,
            "certificate_faults": certificate_faults,
            "release_faults": release_faults,
            "package_faults": package_faults,
            "configuration_faults": configuration_faults,
        }
